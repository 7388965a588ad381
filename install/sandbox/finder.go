package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// Options say where the sources are. All paths are the finder's own unless said otherwise.
type Options struct {
	// RunDir is the plugin's run directory, which has its records; none if empty.
	RunDir string
	// ResultDirs have the runtime's cached results; those that do not exist hold nothing.
	ResultDirs []string
	// HostNetnsDir is the node's path of the directory where the runtime mounts network namespaces;
	// /var/run/netns if empty. NetnsDir is where the finder sees it; the same if empty. Mounts must
	// propagate there.
	HostNetnsDir, NetnsDir string
	// ProcDir is the node's /proc. Nothing is searched there if it is empty.
	ProcDir string
}

// Finder finds sandboxes, and remembers them while they are there. It is safe for concurrent use;
// who searches makes others wait.
type Finder struct {
	netns   netnsDir
	proc    procDir
	records *records
	results *results

	mu    sync.Mutex
	found map[string]known // by UID
	// sweepAt is at how many remembered sandboxes those are forgotten that nobody asks for any
	// more, since they have ended.
	sweepAt int
}

// leastSweep is how many sandboxes are remembered without a look at whether they have ended.
const leastSweep = 128

// New returns a finder.
func New(o Options) *Finder {
	if o.HostNetnsDir == "" {
		o.HostNetnsDir = "/var/run/netns"
	}
	if o.NetnsDir == "" {
		o.NetnsDir = o.HostNetnsDir
	}
	f := &Finder{
		netns: netnsDir{path: o.NetnsDir, onNode: normal(o.HostNetnsDir)}, proc: procDir(o.ProcDir), found: map[string]known{},
		sweepAt: leastSweep, results: &results{dirs: o.ResultDirs},
	}
	f.records = &records{none: o.RunDir == "", store: record.In(o.RunDir)}
	return f
}

// Find returns the sandboxes of the pods, by their UIDs, and the pods that have none that can be
// found. One search serves all. It ends early when ctx does.
func (f *Finder) Find(ctx context.Context, pods []Pod) (found map[string]Sandbox, missing []Missing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := search{
		Finder: f, ctx: ctx, found: make(map[string]Sandbox, len(pods)), wanted: map[string]*Missing{}, own: (*netns.NS)(nil).ID(),
	}
	s.learn()
	for _, p := range pods {
		if p.UID == "" {
			missing = append(missing, Missing{p, errors.New("it has no UID")})
			continue
		}
		if known, ok := f.remembered(p); ok {
			s.found[p.UID] = known
		} else {
			s.wanted[p.UID] = &Missing{Pod: p}
		}
	}
	s.run()
	for _, p := range pods {
		if m := s.wanted[p.UID]; m != nil {
			delete(s.wanted, p.UID)
			why := errors.Join(m.Err, s.trouble)
			if why == nil {
				why = errors.New("neither a record nor the runtime's cache has it")
			}
			missing = append(missing, Missing{p, why})
		}
	}
	f.sweep()
	return s.found, missing
}

// known is a sandbox that was found, while the pod's newest record was that of a container; of none
// if that is empty.
type known struct {
	Sandbox
	recorded string
}

// remember keeps a sandbox that was found.
func (f *Finder) remember(s Sandbox) {
	f.found[s.Pod.UID] = known{s, f.records.claims.newest(s.Pod.UID).containerID}
}

// remembered returns the sandbox that was found for a pod before, if it is still the one.
func (f *Finder) remembered(p Pod) (Sandbox, bool) {
	k, ok := f.found[p.UID]
	if !ok {
		return Sandbox{}, false
	}
	if k.recorded != f.records.claims.newest(p.UID).containerID || k.Pod != p || !k.there() || !f.proc.confirms(k.Sandbox) {
		delete(f.found, p.UID)
		return Sandbox{}, false
	}
	return k.Sandbox, true
}

// sweep forgets sandboxes that have ended. It costs a look at each, once for as many that were
// remembered since the last time.
func (f *Finder) sweep() {
	if len(f.found) < f.sweepAt {
		return
	}
	for uid, k := range f.found {
		if !k.there() {
			delete(f.found, uid)
		}
	}
	f.sweepAt = max(leastSweep, 2*len(f.found))
}

func errorIn(s Source, err error) error { return fmt.Errorf("%s: %w", s, err) }
