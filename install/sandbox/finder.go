package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// Options contains the locations of the sources. All paths are the finder's own unless noted.
type Options struct {
	// RunDir is the plugin's run directory with its records; empty for none.
	RunDir string
	// ResultDirs contain the runtime's cached results; directories that do not exist are ignored.
	ResultDirs []string
	// HostNetnsDir is the path on the node of the directory where the runtime mounts network
	// namespaces; by default /var/run/netns. NetnsDir is its path for the finder; by default the
	// same. Mounts must propagate there.
	HostNetnsDir, NetnsDir string
	// ProcDir is the node's /proc. If it is empty, it is not searched.
	ProcDir string
}

// Finder finds sandboxes, and caches them while they exist. It is safe for concurrent use;
// concurrent searches wait for each other.
type Finder struct {
	netns   netnsDir
	proc    procDir
	records *records
	results *results

	mu    sync.Mutex
	found map[string]known // by UID
	// removeEndedAt is the number of cached sandboxes at which ended ones are removed.
	removeEndedAt int
}

// minCached is the number of sandboxes that are cached without checking whether they have ended.
const minCached = 128

// New returns a finder.
func New(o Options) *Finder {
	if o.HostNetnsDir == "" {
		o.HostNetnsDir = "/var/run/netns"
	}
	if o.NetnsDir == "" {
		o.NetnsDir = o.HostNetnsDir
	}
	f := &Finder{
		netns: netnsDir{path: o.NetnsDir, onNode: canonicalPath(o.HostNetnsDir)}, proc: procDir(o.ProcDir),
		found:         map[string]known{},
		removeEndedAt: minCached, results: &results{dirs: o.ResultDirs},
	}
	f.records = &records{none: o.RunDir == "", store: record.In(o.RunDir)}
	return f
}

// Find returns the sandboxes of the pods by their UIDs, and the pods without a known sandbox. One
// search serves all pods. It ends early when ctx is done.
func (f *Finder) Find(
	ctx context.Context, pods []Pod,
) (found map[string]Sandbox, missing []Missing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := search{
		Finder: f, ctx: ctx, found: make(map[string]Sandbox, len(pods)),
		wanted: map[string]*Missing{}, own: (*netns.NS)(nil).ID(),
	}
	s.readRecords()
	for _, p := range pods {
		if p.UID == "" {
			missing = append(missing, Missing{p, errors.New("it has no UID")})
			continue
		}
		if known, ok := f.cached(p); ok {
			s.found[p.UID] = known
		} else {
			s.wanted[p.UID] = &Missing{Pod: p}
		}
	}
	s.run()
	for _, p := range pods {
		if m := s.wanted[p.UID]; m != nil {
			delete(s.wanted, p.UID)
			cause := errors.Join(m.Err, s.err)
			if cause == nil {
				cause = errors.New("neither a record nor the runtime's cache has it")
			}
			missing = append(missing, Missing{p, cause})
		}
	}
	f.removeEnded()
	return s.found, missing
}

// known is a found sandbox, with the container of the pod's newest record at that time; empty if
// there was none.
type known struct {
	Sandbox
	recorded string
}

// cache caches a sandbox.
func (f *Finder) cache(s Sandbox) {
	f.found[s.Pod.UID] = known{s, f.records.claims.newest(s.Pod.UID).containerID}
}

// cached returns the cached sandbox of a pod if it is still valid.
func (f *Finder) cached(p Pod) (Sandbox, bool) {
	k, ok := f.found[p.UID]
	if !ok {
		return Sandbox{}, false
	}
	if k.recorded != f.records.claims.newest(p.UID).containerID || k.Pod != p || !k.exists() ||
		!f.proc.confirms(k.Sandbox) {
		delete(f.found, p.UID)
		return Sandbox{}, false
	}
	return k.Sandbox, true
}

// removeEnded removes sandboxes that have ended from the cache, each time the number of cached
// sandboxes has doubled.
func (f *Finder) removeEnded() {
	if len(f.found) < f.removeEndedAt {
		return
	}
	for uid, k := range f.found {
		if !k.exists() {
			delete(f.found, uid)
		}
	}
	f.removeEndedAt = max(minCached, 2*len(f.found))
}

func errorIn(s Source, err error) error { return fmt.Errorf("%s: %w", s, err) }
