package hostrules

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// Options are the options of a [Guard]. All fields except Interval and RestartTime are
// required.
type Options struct {
	// Parameters contains the parameters of the rules. The guard sets the pods and the kubelet.
	Parameters rules.AmbientHost
	// Backend reads and writes the rules.
	Backend compat.Backend
	// Open opens the node's network namespace; see [Node.Open].
	Open func() (*netns.NS, error)
	// Do runs a function in the node's network and cgroup namespaces; see [Node.Do].
	Do func(func() error) error
	// Lock takes the lock of the node's iptables programs before tables of iptables-legacy are
	// written; see [Node.Lock].
	Lock func() (unlock func(), err error)
	// FindKubelet returns the kubelet. It is called in Do.
	FindKubelet func() (Kubelet, error)
	// IsKubeletCurrent reports whether the kubelet's process still runs in the same cgroup; see
	// [Kubelet.IsCurrent]. It is called in Do.
	IsKubeletCurrent func(Kubelet) bool
	// Subscribe subscribes to changes of rules.
	Subscribe func() (watch.Events, error)
	// Report is called with each [Report]. It must not block.
	Report func(Report)
	// Interval is the time between comparisons without an event. If it is 0, it is one second while
	// the rules are in the legacy backend, which reports no events, and otherwise 10 s. After an
	// error the guard always tries again after one second.
	Interval time.Duration
	// RestartTime is the time after which a missing kubelet is reported if it was found before; 30
	// s if it is 0. systemd waits for 10 s before it restarts a kubelet.
	RestartTime time.Duration
}

// A Guard maintains the rules of the node. Use [New]. Its methods are safe for concurrent use.
type Guard struct {
	options Options

	mu       sync.Mutex
	pods     map[string][]netip.Addr // by UID
	changes  uint64                  // number of changes of pods so far
	attempts uint64                  // number of attempts so far to bring the rules to the desired state
	loaded   bool                    // Replace was called
	state    State                   // at the end of the last attempt, without Loaded and Pods

	rulesMu         sync.Mutex // held while the rules are read or written; protects the fields below
	writtenChanges  uint64     // value of changes when the written rules were compiled
	err             error      // of the last attempt
	failedAttempt   uint64     // number of the last attempt that failed with err, except a postponed repair
	kubelet         Kubelet
	searchedAt      time.Time // time of the last search for the kubelet; zero before the first one
	kubeletErr      error     // reason why the kubelet was not found, or nil
	missingSince    time.Time // time of the first of successive failed searches; zero if none
	missingReported bool      // the missing kubelet was reported
	matchesUser     bool      // the kernel cannot match the cgroup: match the user
	snapshot        compat.Snapshot
	ruleset         rules.Ruleset // written rules
	backend         compat.BackendName
	comparedAt      time.Time     // time of the last comparison that found the rules as desired
	repairs         *rate.Limiter // limits repairs of changes by other programs
	conflictAt      time.Time     // time of the last postponed repair; zero if there was none
	uninstalled     bool
}

// New returns a guard that has read and written nothing yet.
func New(o Options) *Guard {
	o.RestartTime = cmp.Or(o.RestartTime, 30*time.Second)
	return &Guard{
		options: o, pods: map[string][]netip.Addr{},
		repairs: rate.NewLimiter(rate.Every(repairPeriod), repairBurst),
	}
}

// A State is the state of the rules.
type State struct {
	// Loaded is set if the pods of the node are known. Before that, nothing is written.
	Loaded bool
	// Pods is the number of pods with an address.
	Pods    int
	Kubelet Kubelet
	// KubeletErr is the reason why the kubelet was not found, or nil.
	KubeletErr error
	// Backend is the backend in which the rules are; empty if they have not been written.
	Backend compat.BackendName
	// ComparedAt is the time of the last comparison that found the rules as desired, possibly after
	// a write; zero if there was none.
	ComparedAt time.Time
	// Err is the reason why the rules are not as desired, or nil.
	Err error
}

// InPlace reports whether the last comparison found the rules as desired.
func (s State) InPlace() bool { return s.Err == nil && !s.ComparedAt.IsZero() }

// Blocked returns the reason why the addresses of a pod that starts cannot be written, or nil. In a
// conflict they can: only repairs are postponed.
func (s State) Blocked() error {
	if errors.Is(s.Err, errConflict) {
		return nil
	}
	return s.Err
}

// State returns the state at the end of the last attempt to read or write the rules, with the
// present pods. It does not wait for a present attempt, which may wait for the lock of the iptables
// programs.
func (g *Guard) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state
	s.Loaded, s.Pods = g.loaded, len(g.pods)
	return s
}

// storeState stores the state for [Guard.State]. The caller holds g.rulesMu.
func (g *Guard) storeState() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = State{
		Kubelet: g.kubelet, KubeletErr: g.kubeletErr, Backend: g.backend,
		ComparedAt: g.comparedAt, Err: g.err,
	}
}

var (
	// errNotLoaded is the error before the first call of Replace.
	errNotLoaded = errors.New("the agent does not know the node's pods yet")
	// errConflict is the error if the rules are not as desired, and their repair was postponed.
	errConflict = errors.New("another program changes or removes the rules repeatedly; " +
		"they are restored at most once per second")
)

// Set sets the addresses of a pod, and returns nil once the rules contain them. It ignores
// addresses that do not affect redirection; see [decide.GlobalAddresses]. Before the first call of
// [Guard.Replace], Set changes nothing and returns an error.
func (g *Guard) Set(uid string, addresses []netip.Addr) error {
	g.mu.Lock()
	if !g.loaded {
		g.mu.Unlock()
		return errNotLoaded
	}
	changes, attempts := g.set(uid, addresses), g.attempts
	g.mu.Unlock()
	return g.write(changes, attempts)
}

// Remove removes a pod, and returns nil once the rules contain none of its addresses, except
// addresses that another pod has too.
func (g *Guard) Remove(uid string) error { return g.Set(uid, nil) }

// Replace sets the addresses of all pods of the node, and returns nil once the rules contain them.
func (g *Guard) Replace(pods map[string][]netip.Addr) error {
	g.mu.Lock()
	g.loaded = true
	clear(g.pods)
	g.changes++
	for uid, addresses := range pods {
		g.set(uid, addresses)
	}
	changes, attempts := g.changes, g.attempts
	g.mu.Unlock()
	return g.write(changes, attempts)
}

// set sets the addresses of a pod, and returns the number of changes so far. The caller holds g.mu.
func (g *Guard) set(uid string, addresses []netip.Addr) uint64 {
	addresses = decide.GlobalAddresses(addresses)
	if slices.Equal(g.pods[uid], addresses) {
		return g.changes
	}
	if g.changes++; len(addresses) == 0 {
		delete(g.pods, uid)
	} else {
		g.pods[uid] = addresses
	}
	return g.changes
}

// write ensures that the rules contain the changes of pods up to the given number. attempts is the
// number of attempts at the time of the last change. If a later attempt was the last one and failed,
// write returns its error, whatever it is: each of many callers would otherwise wait for the lock of
// the iptables programs in turn.
func (g *Guard) write(changes, attempts uint64) error {
	g.rulesMu.Lock()
	defer g.rulesMu.Unlock()
	if g.err == nil && g.writtenChanges >= changes {
		return nil
	}
	if g.failedAttempt > attempts {
		return g.err
	}
	return g.reconcile(nil, true)
}

// Parameters returns the parameters of the desired rules, and the backend in which the rules are,
// which is empty if they have not been written. It returns false if the pods of the node are not
// known yet.
func (g *Guard) Parameters() (p rules.AmbientHost, backend compat.BackendName, ok bool) {
	g.rulesMu.Lock()
	defer g.rulesMu.Unlock()
	p, _ = g.parameters()
	g.mu.Lock()
	defer g.mu.Unlock()
	return p, g.backend, g.loaded
}

// parameters returns the parameters of the desired rules, and the number of changes of pods that
// they contain. The caller holds g.rulesMu.
func (g *Guard) parameters() (rules.AmbientHost, uint64) {
	p := g.options.Parameters
	p.Kubelet, p.KubeletUID = g.kubelet.Cgroup, g.kubelet.UID
	if g.matchesUser {
		p.Kubelet = rules.MatchCgroup{}
	}
	g.mu.Lock()
	changes := g.changes
	for _, addresses := range g.pods {
		p.Pods = append(p.Pods, addresses...)
	}
	g.mu.Unlock()
	slices.SortFunc(p.Pods, netip.Addr.Compare)
	p.Pods = slices.Compact(p.Pods)
	return p, changes
}

// reconcile brings the rules to the desired state. It does nothing before Replace and after
// Uninstall. The caller holds g.rulesMu. event is the event that caused the call, or nil. Unless
// urgent is set, a repair may be postponed; the error is then errConflict.
func (g *Guard) reconcile(event *watch.Event, urgent bool) error {
	g.mu.Lock()
	active := g.loaded && !g.uninstalled
	if active {
		g.attempts++ // before the pods are read
	}
	attempt := g.attempts
	g.mu.Unlock()
	if !active {
		return nil
	}
	defer g.storeState()
	err := g.options.Do(func() error { return g.reconcileInNode(event, urgent) })
	isConflict := errors.Is(err, errConflict)
	switch {
	case isConflict && g.err != nil && !errors.Is(g.err, errConflict):
		return g.err // the last repair failed, so that there is no conflict yet
	case isConflict:
		g.reportConflict(event)
	case err != nil && (g.err == nil || g.err.Error() != err.Error()):
		g.options.Report(Report{Kind: Failed, Err: err})
	}
	g.err, g.failedAttempt = err, 0
	if err != nil && !isConflict {
		g.failedAttempt = attempt
	}
	return err
}

// reportConflict reports a postponed repair, unless an earlier repair was postponed less than
// conflictReset ago.
func (g *Guard) reportConflict(event *watch.Event) {
	now := time.Now()
	if g.conflictAt.IsZero() || now.Sub(g.conflictAt) > conflictReset {
		r := Report{Kind: Conflict}
		r.setProcess(event)
		g.options.Report(r)
	}
	g.conflictAt = now
}

// reconcileInNode does the work of reconcile. The calling thread is in the node's namespaces.
func (g *Guard) reconcileInNode(event *watch.Event, urgent bool) error {
	kubeletChanged := g.findKubelet()
	p, changes := g.parameters()
	rs, err := rules.CompileAmbientHost(p)
	if err != nil {
		return err
	}
	sameRules := g.backend != "" && rules.Equal(rs, g.ruleset)
	var last compat.Snapshot
	if sameRules {
		last = g.snapshot
	}
	found, err := compat.CheckReadable(g.options.Backend, nil, rs, last)
	if err != nil {
		return err
	}
	if len(found.Differences) > 0 {
		if sameRules && !g.repairs.Allow() && !urgent {
			return errConflict
		}
		applied, err := g.apply(rs, found.Snapshot)
		if compat.IsNotSupported(err) && !g.matchesUser &&
			g.kubelet.Cgroup != (rules.MatchCgroup{}) {
			g.matchesUser = true
			g.options.Report(Report{Kind: MatchedByUser, Kubelet: g.kubelet, Err: err})
			return g.reconcileInNode(event, urgent)
		}
		if err != nil && !compat.IsLegacyTooLarge(applied.Backend, err) {
			return err
		}
		found, err = compat.CheckReadable(g.options.Backend, nil, rs, applied.Snapshot())
		if err != nil {
			return err
		}
		if len(found.Differences) > 0 {
			return fmt.Errorf("the rules in the kernel differ from the rules that were written: %s",
				strings.Join(rules.DifferenceTexts(found.Differences), "; "))
		}
		g.reportWrite(applied, sameRules, kubeletChanged, event)
	}
	g.snapshot, g.ruleset, g.backend = found.Snapshot, rs, found.Backend
	g.writtenChanges, g.comparedAt = changes, time.Now()
	return nil
}

// apply writes the rules. It holds the lock of the iptables programs if necessary.
func (g *Guard) apply(rs rules.Ruleset, since compat.Snapshot) (compat.Result, error) {
	unlock, err := g.lock()
	if err != nil {
		return compat.Result{}, err
	}
	defer unlock()
	return g.options.Backend.Apply(nil, rs, since)
}

// lock takes the lock of the iptables programs, unless only nf_tables will be written. The first
// write with the nf_tables backend also removes the rules that an earlier agent wrote to
// iptables-legacy, and therefore needs the lock if there are such rules. It does not remove rules
// from tables that are too large to read.
func (g *Guard) lock() (unlock func(), err error) {
	noUnlock := func() {}
	if g.backend == compat.BackendNFT {
		return noUnlock, nil
	}
	if g.options.Backend.Name() == compat.BackendNFT {
		installed, err := compat.InstalledBackends(nil)
		if compat.IsLegacyTooLarge(compat.BackendNFT, err) {
			err = nil
		}
		if err != nil || !slices.ContainsFunc(installed, isLegacy) {
			return noUnlock, err
		}
	}
	return g.options.Lock()
}

func isLegacy(b compat.Backend) bool { return b.Name() == compat.BackendLegacy }

// reportWrite reports a write that was not caused by a change of pods, except the first write.
// sameRules means that the desired rules have not changed since the last write.
func (g *Guard) reportWrite(
	applied compat.Result, sameRules, kubeletChanged bool, event *watch.Event,
) {
	switch {
	case sameRules && applied.Outcome != nft.Unchanged:
		r := Report{Kind: Repaired}
		r.setProcess(event)
		g.options.Report(r)
	case kubeletChanged && g.backend != "":
		g.options.Report(Report{Kind: KubeletChanged, Kubelet: g.kubelet})
	}
}

// findKubelet searches for the kubelet if a search is due, and reports whether its cgroup or user
// has changed. If no kubelet is found, for example because it restarts, findKubelet keeps the last
// result.
func (g *Guard) findKubelet() (changed bool) {
	if !g.searchedAt.IsZero() && !g.isSearchDue() {
		return false
	}
	last := g.kubelet
	g.searchedAt = time.Now()
	k, err := g.options.FindKubelet()
	if g.kubeletErr = err; err != nil {
		g.reportMissing(err)
		return false
	}
	g.kubelet, g.missingSince, g.missingReported = k, time.Time{}, false
	return k.Cgroup != last.Cgroup || k.UID != last.UID
}

// reportMissing reports a missing kubelet once. A kubelet that was found before is reported only
// after Options.RestartTime.
func (g *Guard) reportMissing(err error) {
	if g.missingSince.IsZero() {
		g.missingSince = g.searchedAt
	}
	mayRestart := g.kubelet != (Kubelet{}) &&
		g.searchedAt.Sub(g.missingSince) < g.options.RestartTime
	if mayRestart || g.missingReported {
		return
	}
	g.missingReported = true
	g.options.Report(Report{Kind: KubeletMissing, Err: err})
}

// isSearchDue reports whether the kubelet must be searched for again after the first search. The
// calling thread is in the node's namespaces.
func (g *Guard) isSearchDue() bool {
	if g.kubeletErr != nil {
		return time.Since(g.searchedAt) >= searchInterval
	}
	return !g.options.IsKubeletCurrent(g.kubelet)
}
