package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// Options contains the locations of the sources. Paths are valid in this process's mount namespace
// unless noted.
type Options struct {
	// RunDir is the plugin's run directory, which contains the records of ADD. If it is empty,
	// there are no records.
	RunDir string
	// ResultDirs contains the directories of the runtime's cached results. Directories that do not
	// exist are ignored.
	ResultDirs []string
	// HostNetnsDir is the path on the node of the directory where the runtime mounts network
	// namespaces; /var/run/netns if it is empty.
	HostNetnsDir string
	// NetnsDir is the path at which this process finds the directory HostNetnsDir; the same path if
	// it is empty. Mounts of the runtime must propagate to NetnsDir.
	NetnsDir string
	// ProcDir is the node's /proc. If it is empty, processes are not searched.
	ProcDir string
}

// Finder finds sandboxes, and caches them while they exist. It is safe for concurrent use;
// concurrent searches wait for each other.
type Finder struct {
	netns   netnsDir
	proc    procDir
	records *records
	results *results

	mu     sync.Mutex
	cached map[Pod]cachedSandbox
	// removeEndedAt is the number of cached sandboxes at which ended sandboxes are removed.
	removeEndedAt int
}

// minCached is the number of cached sandboxes below which ended sandboxes are not removed.
const minCached = 128

// New returns a finder.
func New(o Options) *Finder {
	o.HostNetnsDir = cmp.Or(o.HostNetnsDir, "/var/run/netns")
	o.NetnsDir = cmp.Or(o.NetnsDir, o.HostNetnsDir)
	f := &Finder{
		netns:   netnsDir{path: o.NetnsDir, onNode: canonicalPath(o.HostNetnsDir)},
		proc:    procDir(o.ProcDir),
		records: &records{},
		results: &results{dirs: o.ResultDirs},
		cached:  map[Pod]cachedSandbox{}, removeEndedAt: minCached,
	}
	if o.RunDir != "" {
		f.records.index = record.In(o.RunDir).Index()
	}
	return f
}

// Find returns the sandboxes of the pods, and the pods whose sandbox was not found. It searches
// each source once for all pods, and ends early when ctx is done.
func (f *Finder) Find(
	ctx context.Context, pods []Pod,
) (found map[Pod]Sandbox, missing map[Pod]Missing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := search{
		Finder: f, ctx: ctx, found: make(map[Pod]Sandbox, len(pods)),
		wanted: map[Pod]*Missing{}, own: (*netns.NS)(nil).ID(),
	}
	missing = map[Pod]Missing{}
	s.addError(s.records.refresh())
	for _, p := range pods {
		if p.UID == "" {
			missing[p] = Missing{Err: errors.New("the pod has no UID")}
			continue
		}
		if sb, ok := f.fromCache(p); ok {
			s.found[p] = sb
		} else {
			s.wanted[p] = &Missing{}
		}
	}
	s.run()
	for p, m := range s.wanted {
		if m.Err = errors.Join(m.Err, s.err); m.Err == nil {
			m.Err = errors.New("neither a record nor the runtime's cache contains the pod")
		}
		missing[p] = *m
	}
	f.removeEnded()
	return s.found, missing
}

// A cachedSandbox is a found sandbox. It is valid while the sandbox exists and the pod has no newer
// record.
type cachedSandbox struct {
	Sandbox
	recorded candidate // of the pod's newest record; zero if there was none
}

// fromCache returns the cached sandbox of a pod if it is still valid.
func (f *Finder) fromCache(p Pod) (Sandbox, bool) {
	c, ok := f.cached[p]
	if !ok {
		return Sandbox{}, false
	}
	if c.recorded != f.records.candidates.newest(p.UID) || !c.exists() ||
		!f.proc.confirms(c.Sandbox) {
		delete(f.cached, p)
		return Sandbox{}, false
	}
	return c.Sandbox, true
}

// removeEnded removes sandboxes that have ended from the cache, each time the number of cached
// sandboxes has doubled.
func (f *Finder) removeEnded() {
	if len(f.cached) < f.removeEndedAt {
		return
	}
	maps.DeleteFunc(f.cached, func(_ Pod, c cachedSandbox) bool { return !c.exists() })
	f.removeEndedAt = max(minCached, 2*len(f.cached))
}

// errorIn adds the name of a source to an error of this source.
func errorIn(s Source, err error) error { return fmt.Errorf("%s: %w", s, err) }
