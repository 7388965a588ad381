package hostrules

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// Options are the options of a guard. All are required unless noted.
type Options struct {
	// Parameters are the parameters of the rules. The guard sets the pods and the kubelet.
	Parameters rules.AmbientHost
	// Backend contains the rules.
	Backend compat.Backend
	// Open opens the node's network namespace, and Do runs a function in it; see [Node].
	Open func() (*netns.NS, error)
	Do   func(func() error) error
	// Lock takes the lock of the node's iptables programs before tables of iptables-legacy are
	// written; see [Node.Lock].
	Lock func() (unlock func(), err error)
	// Find returns the kubelet. It is called in Do.
	Find func() (Kubelet, error)
	// Current reports whether the kubelet is still the same process in the same cgroup.
	Current func(Kubelet) bool
	// Listen subscribes to changes of rules.
	Listen func() (Events, error)
	// Report receives what happened to the rules. It must not block.
	Report func(Report)
	// Interval is the time between comparisons without an event; by default 10 s, and one second
	// while the legacy backend has the rules, which reports no events.
	Interval time.Duration
}

// Events are the events of network namespaces; implemented by [watch.Watcher].
type Events interface {
	Add(*netns.NS) error
	Next(ctx context.Context) (watch.Event, error)
	Close() error
}

// A Guard keeps the rules of the node. Use [New]. Its methods are safe for concurrent use.
type Guard struct {
	options Options
	wake    chan struct{} // has room for one

	mu      sync.Mutex
	pods    map[string][]netip.Addr // by UID
	changed uint64                  // number of changes of pods
	loaded  bool                    // Replace was called

	writing  sync.Mutex // held while the rules are read or written; protects the fields below
	written  uint64     // the number of changes of pods that the rules contain
	err      error      // of the last attempt
	kubelet  Kubelet
	searched time.Time // of the last search for the kubelet; zero if it must be searched for
	missing  error     // why there is no kubelet
	byUser   bool      // the kernel cannot match the kubelet's cgroup
	last     compat.Snapshot
	lastRS   rules.Ruleset
	backend  compat.BackendName
	compared time.Time // when the rules were as desired
	removed  bool
}

// New returns a guard that has read and written nothing yet.
func New(o Options) *Guard {
	return &Guard{options: o, wake: make(chan struct{}, 1), pods: map[string][]netip.Addr{}}
}

// A State is the state of the rules.
type State struct {
	// Loaded reports that the pods of the node are known. Before that, nothing is written.
	Loaded bool
	// Pods is the number of pods with an address.
	Pods int
	// Kubelet is the kubelet, and Missing the reason if it was not found.
	Kubelet Kubelet
	Missing error
	// Backend contains the rules; empty if they were not written yet.
	Backend compat.BackendName
	// Compared is the time of the last comparison that found the rules as desired, possibly after a
	// write; zero before.
	Compared time.Time
	// Err is the reason why the rules are not as desired, or nil.
	Err error
}

// InPlace reports whether the last comparison found the rules as desired.
func (s State) InPlace() bool { return s.Err == nil && !s.Compared.IsZero() }

// State returns the current state.
func (g *Guard) State() State {
	g.writing.Lock()
	defer g.writing.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{
		Loaded: g.loaded, Pods: len(g.pods), Kubelet: g.kubelet, Missing: g.missing,
		Backend: g.backend, Compared: g.compared, Err: g.err,
	}
}

// errNotLoaded is the error before the first call of Replace.
var errNotLoaded = errors.New("the agent does not know the node's pods yet")

// Set sets the addresses of a pod, and returns when the rules contain them. Addresses of interfaces
// and loopback addresses are ignored.
func (g *Guard) Set(uid string, addresses []netip.Addr) error {
	g.mu.Lock()
	if !g.loaded {
		g.mu.Unlock()
		return errNotLoaded
	}
	seq := g.set(uid, addresses)
	g.mu.Unlock()
	return g.write(seq)
}

// Remove removes a pod, and returns when the rules no longer contain its addresses, except for
// addresses of other pods.
func (g *Guard) Remove(uid string) error { return g.Set(uid, nil) }

// Replace sets the addresses of all pods of the node.
func (g *Guard) Replace(pods map[string][]netip.Addr) error {
	g.mu.Lock()
	g.loaded = true
	clear(g.pods)
	g.changed++
	for uid, addresses := range pods {
		g.set(uid, addresses)
	}
	seq := g.changed
	g.mu.Unlock()
	return g.write(seq)
}

// set sets the addresses of a pod, and returns the number of changes so far. The caller holds mu.
func (g *Guard) set(uid string, addresses []netip.Addr) uint64 {
	addresses = decide.Deciding(addresses)
	if slices.Equal(g.pods[uid], addresses) {
		return g.changed
	}
	if g.changed++; len(addresses) == 0 {
		delete(g.pods, uid)
	} else {
		g.pods[uid] = addresses
	}
	return g.changed
}

// write writes the rules, unless another call has written them since the change.
func (g *Guard) write(seq uint64) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	if g.err == nil && g.written >= seq {
		return nil
	}
	return g.reconcile(nil)
}

// Parameters returns the parameters of the desired rules, and the backend that has the rules, empty
// if they were not written yet. It returns false if the pods of the node are not known yet.
func (g *Guard) Parameters() (p rules.AmbientHost, backend compat.BackendName, ok bool) {
	g.writing.Lock()
	defer g.writing.Unlock()
	p, _ = g.parameters()
	g.mu.Lock()
	defer g.mu.Unlock()
	return p, g.backend, g.loaded
}

// desired returns the desired rules, and the number of changes that they contain.
func (g *Guard) desired() (rules.Ruleset, uint64, error) {
	p, seq := g.parameters()
	rs, err := rules.CompileAmbientHost(p)
	return rs, seq, err
}

// parameters returns the parameters of the desired rules, and the number of changes that they
// contain. The caller holds writing.
func (g *Guard) parameters() (rules.AmbientHost, uint64) {
	p := g.options.Parameters
	p.Kubelet, p.KubeletUID = g.kubelet.Cgroup, g.kubelet.UID
	if g.byUser {
		p.Kubelet = rules.MatchCgroup{}
	}
	g.mu.Lock()
	seq := g.changed
	for _, addresses := range g.pods {
		p.Pods = append(p.Pods, addresses...)
	}
	g.mu.Unlock()
	slices.SortFunc(p.Pods, netip.Addr.Compare)
	p.Pods = slices.Compact(p.Pods)
	return p, seq
}

// reconcile makes the rules as desired. The caller holds writing. event is the event that caused
// it, or nil.
func (g *Guard) reconcile(event *watch.Event) error {
	g.mu.Lock()
	loaded := g.loaded
	g.mu.Unlock()
	if !loaded || g.removed {
		return nil
	}
	failed := g.err
	g.err = g.options.Do(func() error { return g.reconcileInNode(event) })
	if g.err != nil && (failed == nil || failed.Error() != g.err.Error()) {
		g.options.Report(Report{Kind: Failed, Err: g.err})
	}
	return g.err
}

// reconcileInNode is reconcile in the node's namespaces.
func (g *Guard) reconcileInNode(event *watch.Event) error {
	restarted := g.findKubelet()
	rs, seq, err := g.desired()
	if err != nil {
		return err
	}
	same := g.backend != "" && rules.Equal(rs, g.lastRS)
	prev := g.last
	if !same {
		prev = compat.Snapshot{}
	}
	found, err := g.options.Backend.Check(nil, rs, prev)
	if err != nil {
		return err
	}
	if len(found.Differences) > 0 {
		applied, err := g.apply(rs, found.Snapshot)
		if compat.IsNotSupported(err) && !g.byUser && g.kubelet.Cgroup != (rules.MatchCgroup{}) {
			g.byUser = true
			g.options.Report(Report{Kind: ByUser, Kubelet: g.kubelet, Err: err})
			return g.reconcileInNode(event)
		}
		if err != nil {
			return err
		}
		if found, err = g.options.Backend.Check(nil, rs, applied.Snapshot()); err != nil {
			return err
		}
		if len(found.Differences) > 0 {
			return &differencesError{found.Differences}
		}
		g.reportWrite(applied, same, restarted, event)
	}
	g.last, g.lastRS, g.backend, g.written = found.Snapshot, rs, found.Backend, seq
	g.compared = time.Now()
	return nil
}

// apply writes the rules.
func (g *Guard) apply(rs rules.Ruleset, since compat.Snapshot) (compat.Result, error) {
	unlock, err := g.lock()
	if err != nil {
		return compat.Result{}, err
	}
	defer unlock()
	return g.options.Backend.Apply(nil, rs, since)
}

// lock takes the lock of the iptables programs, unless only nf_tables will be written. An earlier
// agent may have written rules to iptables-legacy, which are removed by the first write.
func (g *Guard) lock() (unlock func(), err error) {
	unlocked := func() {}
	if g.backend == compat.BackendNFT {
		return unlocked, nil
	}
	if g.options.Backend.Name() == compat.BackendNFT {
		installed, err := compat.InstalledBackends(nil)
		if compat.IsNotPermitted(err) { // without CAP_NET_RAW, this agent writes no tables of iptables-legacy
			err = nil
		}
		if err != nil || !slices.ContainsFunc(installed, isLegacy) {
			return unlocked, err
		}
	}
	return g.options.Lock()
}

func isLegacy(b compat.Backend) bool { return b.Name() == compat.BackendLegacy }

// reportWrite reports a write that was not caused by a change of pods.
func (g *Guard) reportWrite(applied compat.Result, same, restarted bool, event *watch.Event) {
	switch {
	case same && applied.Outcome != nft.Unchanged:
		r := Report{Kind: Repaired}
		if event != nil && event.PID != 0 {
			r.Process, r.PID = event.Process, event.PID
		}
		g.options.Report(r)
	case restarted && g.backend != "":
		g.options.Report(Report{Kind: KubeletChanged, Kubelet: g.kubelet})
	}
}

// findKubelet searches for the kubelet if it is not known, and reports whether it is another one.
func (g *Guard) findKubelet() (changed bool) {
	if !g.searched.IsZero() &&
		(g.missing == nil && g.options.Current(g.kubelet) ||
			g.missing != nil && time.Since(g.searched) < searchInterval) {
		return false
	}
	before, was := g.kubelet, g.missing
	g.searched = time.Now()
	k, err := g.options.Find()
	if g.missing = err; err != nil {
		// A kubelet that restarts keeps its rules until it is there again.
		if was == nil {
			g.options.Report(Report{Kind: KubeletMissing, Err: err})
		}
		return false
	}
	g.kubelet = k
	return k.Cgroup != before.Cgroup || k.UID != before.UID
}
