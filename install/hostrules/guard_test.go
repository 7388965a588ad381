package hostrules_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/hostrules"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A testEnv is a node with a guard. The test controls the node's kubelet.
type testEnv struct {
	t       testing.TB
	host    *netns.NS
	backend compat.Backend
	options hostrules.Options
	*hostrules.Guard

	mu         sync.Mutex
	kubelet    hostrules.Kubelet
	kubeletErr error // the error of FindKubelet
	reports    []hostrules.Report
	locks      int // successful calls of lock
	locked     bool
	lockErr    error // the error of lock
}

func (env *testEnv) lock() (func(), error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.lockErr != nil {
		return nil, env.lockErr
	}
	if env.locks++; env.locked {
		env.t.Error("lock was called while the lock was held")
	}
	env.locked = true
	return func() {
		env.mu.Lock()
		defer env.mu.Unlock()
		env.locked = false
	}, nil
}

func newTestEnv(t testing.TB, backend compat.BackendName) *testEnv {
	t.Helper()
	netnstest.RequireRoot(t)
	env := &testEnv{t: t, host: netnstest.New(t)}
	_, cgroup := netnstest.NewCgroup(t, fmt.Sprintf("sluice-test-%d-guard", os.Getpid()))
	env.kubelet = kubeletIn(cgroup)
	var err error
	if env.backend, err = compat.Choose(backend); err != nil {
		t.Fatal(err)
	}
	env.options = hostrules.Options{
		Parameters: rules.DefaultAmbientHost(), Backend: env.backend,
		Open: func() (*netns.NS, error) { return netns.FromHandle(env.host.Handle()) },
		Do:   env.host.Do, Lock: env.lock, FindKubelet: env.find,
		IsKubeletCurrent: func(k hostrules.Kubelet) bool {
			if in := (*netns.NS)(nil).ID(); in != env.host.ID() {
				t.Errorf("IsKubeletCurrent is called in namespace %v, want %v", in, env.host.ID())
			}
			env.mu.Lock()
			defer env.mu.Unlock()
			return env.kubeletErr == nil && k == env.kubelet
		},
		Subscribe: watch.Subscribe,
		Report: func(r hostrules.Report) {
			env.mu.Lock()
			defer env.mu.Unlock()
			env.reports = append(env.reports, r)
		},
	}
	env.Guard = hostrules.New(env.options)
	return env
}

func kubeletIn(cgroup rules.MatchCgroup) hostrules.Kubelet {
	return hostrules.Kubelet{PID: os.Getpid(), Cgroup: cgroup}
}

func (env *testEnv) find() (hostrules.Kubelet, error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.kubelet, env.kubeletErr
}

// run runs the guard until the test ends.
func (env *testEnv) run() {
	ctx, cancel := context.WithCancel(env.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); env.Run(ctx) }()
	env.t.Cleanup(func() { cancel(); <-done })
}

// hasRules reports whether the node has exactly the rules for the pods.
func (env *testEnv) hasRules(pods ...string) bool {
	env.t.Helper()
	p := rules.DefaultAmbientHost()
	env.mu.Lock()
	p.Kubelet, p.KubeletUID = env.kubelet.Cgroup, env.kubelet.UID
	env.mu.Unlock()
	p.Pods = addresses(pods...)
	rs, err := rules.CompileAmbientHost(p)
	if err != nil {
		env.t.Fatal(err)
	}
	found, err := env.backend.Check(env.host, rs, compat.Snapshot{})
	if err != nil && !compat.IsLegacyTooLarge(found.Backend, err) {
		env.t.Fatal(err)
	}
	return len(found.Differences) == 0
}

// countReports returns the number of reports of a kind.
func (env *testEnv) countReports(kind hostrules.ReportKind) int {
	env.mu.Lock()
	defer env.mu.Unlock()
	n := 0
	for _, r := range env.reports {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var backends = []compat.BackendName{compat.BackendNFT, compat.BackendLegacy}

func TestRulesFollowThePods(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			env := newTestEnv(t, b)
			if err := env.Set("early", addresses("10.0.0.9")); err == nil {
				t.Error("Set before Replace: no error, want one")
			}
			must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1", "fd00::1")}))
			must(t, env.Set("b", addresses("10.0.0.2", "127.0.0.1", "fe80::1", "::ffff:10.0.0.3")))
			if !env.hasRules("10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.3") {
				t.Error("the rules do not contain the addresses of both pods")
			}
			// An address is assigned to another pod before its previous one is removed.
			must(t, env.Set("c", addresses("10.0.0.1")))
			must(t, env.Remove("a"))
			if !env.hasRules("10.0.0.1", "10.0.0.2", "10.0.0.3") {
				t.Error("the rules do not contain the address of the pod that still has it")
			}
			must(t, env.Remove("unknown"))
			must(t, env.Replace(map[string][]netip.Addr{"d": addresses("10.0.0.4")}))
			if !env.hasRules("10.0.0.4") {
				t.Error("the rules do not contain exactly the pods of the last Replace")
			}
			if s := env.State(); s.Pods != 1 || s.Backend != b || s.Err != nil || !s.Loaded {
				t.Errorf("state %+v, want one pod in the backend %s, and no error", s, b)
			}
			must(t, env.Uninstall())
			if installed, err := compat.InstalledBackends(env.host); err != nil || len(installed) > 0 {
				t.Errorf("after uninstallation: rules in the backends %v, error %v; want neither", installed, err)
			}
			must(t, env.Set("late", addresses("10.0.0.5")))
			if installed, err := compat.InstalledBackends(env.host); err != nil || len(installed) > 0 {
				t.Errorf("after Set of an uninstalled guard: rules in the backends %v, error %v; want neither", installed, err)
			}
		})
	}
}

// TestNothingIsWrittenBeforeThePodsAreKnown checks that the rules of an earlier agent remain
// until the pods are known.
func TestNothingIsWrittenBeforeThePodsAreKnown(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	later := hostrules.New(env.options)
	env.Guard = later
	env.run()
	for range 3 {
		_ = later.Set("b", addresses("10.0.0.2"))
		if !env.hasRules("10.0.0.1") {
			t.Fatal("the rules of the earlier agent have changed")
		}
	}
	must(t, later.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !env.hasRules("10.0.0.1") || env.countReports(hostrules.Repaired) > 0 {
		t.Errorf("reports %v, want no repair and the unchanged rules", env.reports)
	}
}

// TestLegacyTablesOfTheNodeMayBeLarge covers a node on which kube-proxy has written very many rules
// to iptables-legacy.
func TestLegacyTablesOfTheNodeMayBeLarge(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendAuto} {
		t.Run(string(backend), func(t *testing.T) {
			env := newTestEnv(t, backend)
			istiotest.RestoreLargeTable(t, env.host, "nat")
			env.run()
			must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
			if !env.hasRules("10.0.0.1") {
				t.Error("no rules for the pod")
			}
			must(t, env.Set("b", addresses("10.0.0.2")))
			if !env.hasRules("10.0.0.1", "10.0.0.2") {
				t.Error("no rules for the second pod")
			}
		})
	}
}

func TestFlushedRulesAreRestored(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	env.options.Interval = time.Hour // only events trigger repairs
	env.Guard = hostrules.New(env.options)
	env.run()
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	namesProcess := func() bool {
		env.mu.Lock()
		defer env.mu.Unlock()
		return slices.ContainsFunc(env.reports, func(r hostrules.Report) bool {
			return strings.Contains(r.String(), "has restored them") &&
				strings.Contains(r.String(), `by process "nft"`)
		})
	}
	// The process is unknown if the guard finds the rules missing before it reads the event. This
	// may happen when the guard compares the rules after its own change.
	for i := 0; i < 3 || i < 20 && !namesProcess(); i++ {
		env.runOnNode("", "nft", "flush", "ruleset")
		rulestest.Eventually(t, "the rules are restored", func() bool { return env.hasRules("10.0.0.1") })
		if i < 3 { // further repairs may be reported as a conflict
			rulestest.Eventually(t, "the repair is reported", func() bool { return env.countReports(hostrules.Repaired) == i+1 })
		}
	}
	if !namesProcess() {
		t.Errorf("no report of a repair names the process nft: %v", env.reports)
	}
}

// TestRepairsOfAConflictAreLimited checks that the first repairs are immediate, that the
// following ones are limited, and that the conflict is reported once.
func TestRepairsOfAConflictAreLimited(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	env.run()
	pods := addresses("10.0.0.1")
	must(t, env.Replace(map[string][]netip.Addr{"a": pods}))
	isConflict := func() bool { return env.countReports(hostrules.Conflict) > 0 }
	begin := time.Now()
	remove := func() {
		if env.hasRules("10.0.0.1") {
			env.Parameters() // waits until the repair ends: a flush during the repair would make it fail
			env.runOnNode("", "nft", "flush", "ruleset")
		}
	}
	rulestest.Eventually(t, "the conflict is reported", func() bool { remove(); return isConflict() })
	if n := env.countReports(hostrules.Repaired); n < 3 {
		t.Errorf("%d repairs before the first delay, want at least 3", n)
	}
	var s hostrules.State
	rulestest.Eventually(t, "the rules are not in place", func() bool { remove(); s = env.State(); return !s.InPlace() })
	if err := s.Blocked(); err != nil {
		t.Errorf("the conflict blocks pods that start: %v", err)
	}
	// A pod that starts does not wait, whether or not its addresses are already in the desired
	// rules.
	must(t, env.Set("a", pods))
	if !env.hasRules("10.0.0.1") {
		t.Error("the rules were not restored for a pod that started again during the conflict")
	}
	must(t, env.Set("b", addresses("10.0.0.2")))
	if !env.hasRules("10.0.0.1", "10.0.0.2") {
		t.Error("the rules do not contain the pod that started during the conflict")
	}
	must(t, env.Remove("b"))
	rulestest.Eventually(t, "two more repairs", func() bool {
		remove()
		return env.countReports(hostrules.Repaired) >= 5
	})
	repairs, seconds := env.countReports(hostrules.Repaired), int(time.Since(begin)/time.Second)
	if repairs > 3+seconds+1 || env.countReports(hostrules.Conflict) != 1 {
		t.Errorf("%d repairs in %d s, reports %v; want at most four plus one per second, and one report of the conflict",
			repairs, seconds, env.reports)
	}
	rulestest.Eventually(t, "the rules are restored", func() bool {
		return env.hasRules("10.0.0.1") && env.State().InPlace()
	})
}

// A failingBackend is a backend whose Apply fails while fails is set.
type failingBackend struct {
	compat.Backend
	fails    atomic.Bool
	attempts atomic.Int32 // failed calls of Apply
}

func (b *failingBackend) Apply(
	ns *netns.NS, rs rules.Ruleset, since compat.Snapshot,
) (compat.Result, error) {
	if b.fails.Load() {
		b.attempts.Add(1)
		return compat.Result{}, errors.New("the write fails")
	}
	return b.Backend.Apply(ns, rs, since)
}

// TestStateDoesNotWaitForTheLock checks that the state can be read while a write waits for the lock
// of the iptables programs, because it explains why pods do not start.
func TestStateDoesNotWaitForTheLock(t *testing.T) {
	env := newTestEnv(t, compat.BackendLegacy)
	waiting, released := make(chan struct{}), make(chan struct{})
	env.options.Lock = func() (func(), error) {
		close(waiting)
		<-released
		return env.lock()
	}
	env.Guard = hostrules.New(env.options)
	written, state := make(chan error, 1), make(chan hostrules.State, 1)
	go func() { written <- env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}) }()
	<-waiting
	go func() { state <- env.State() }()
	select {
	case s := <-state:
		if s.Pods != 1 || s.InPlace() {
			t.Errorf("state %+v, want one pod, and rules that are not in place", s)
		}
	case <-time.After(10 * time.Second):
		t.Error("the state cannot be read within 10 s")
	}
	close(released)
	must(t, <-written)
	if s := env.State(); !s.InPlace() {
		t.Errorf("after the write: state %+v, want rules in place", s)
	}
}

// TestWaitingWritesShareTheNextAttempt checks that writes that arrive while another write waits for
// the lock of the iptables programs share one further wait and its error. The time until all of
// them have failed then does not depend on their number.
func TestWaitingWritesShareTheNextAttempt(t *testing.T) {
	const writes = 20
	env := newTestEnv(t, compat.BackendLegacy)
	waiting, timeout := make(chan struct{}, writes), make(chan struct{}, writes)
	env.options.Lock = func() (func(), error) {
		waiting <- struct{}{}
		<-timeout
		return nil, errors.New("another program holds the lock")
	}
	env.Guard = hostrules.New(env.options)
	result := make(chan error, writes)
	go func() { result <- env.Replace(map[string][]netip.Addr{"0": addresses("10.0.0.1")}) }()
	<-waiting
	for i := 1; i < writes; i++ {
		go func() { result <- env.Set(fmt.Sprint(i), addresses(fmt.Sprintf("10.0.0.%d", i+1))) }()
	}
	rulestest.Eventually(t, "all writes wait", func() bool { return env.State().Pods == writes })
	timeout <- struct{}{}
	<-waiting
	timeout <- struct{}{}
	for i := range writes {
		select {
		case err := <-result:
			if err == nil {
				t.Error("a write succeeds while another program holds the lock")
			}
		case <-waiting:
			t.Fatalf("%d writes have failed after two waits for the lock, want %d", i, writes)
		}
	}
	// A write after the failure tries again.
	timeout <- struct{}{}
	if err := env.Set("1", addresses("10.0.0.2")); err == nil || len(waiting) != 1 {
		t.Errorf("a later write: error %v after %d waits, want an error after one", err, len(waiting))
	}
}

// TestAFailedRepairIsNotAConflict checks that a failing repair is reported once, as a failure and
// not as a conflict, although the guard retries it often because other programs change rules.
func TestAFailedRepairIsNotAConflict(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	backend := &failingBackend{Backend: env.backend}
	env.options.Backend = backend
	env.Guard = hostrules.New(env.options)
	env.run()
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	backend.fails.Store(true)
	env.runOnNode("", "nft", "flush", "ruleset")
	changes := 0
	rulestest.Eventually(t, "the limit is exceeded, and the repair is tried again", func() bool {
		env.runOnNode("", "nft", "add", "table", "ip", fmt.Sprintf("t%d", changes))
		changes++
		return changes > 10 && backend.attempts.Load() > 4
	})
	if err := env.State().Err; err == nil || err.Error() != "the write fails" {
		t.Errorf("state: error %v, want the error of the write", err)
	}
	backend.fails.Store(false)
	rulestest.Eventually(t, "the rules are restored", func() bool { return env.hasRules("10.0.0.1") })
	if failed, conflict := env.countReports(hostrules.Failed),
		env.countReports(hostrules.Conflict); failed != 1 || conflict != 0 {
		t.Errorf("%d reports of the failure and %d of a conflict, want 1 and none", failed, conflict)
	}
}

// brokenEvents is a subscription that fails after it was made.
type brokenEvents struct{}

func (brokenEvents) Add(*netns.NS) error { return nil }
func (brokenEvents) Close() error        { return nil }
func (brokenEvents) Next(context.Context) (watch.Event, error) {
	return watch.Event{}, errors.New("the socket fails")
}

// TestALastingFailureOfTheSubscriptionIsReportedOnce checks that only the first of successive
// failures is reported, and that a failure after a successful subscription is reported again.
func TestALastingFailureOfTheSubscriptionIsReportedOnce(t *testing.T) {
	host := netnstest.New(t)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reports, nextSucceeds := 0, false
		guard := hostrules.New(hostrules.Options{
			Open: func() (*netns.NS, error) { return netns.FromHandle(host.Handle()) },
			Do:   func(func() error) error { return nil },
			Subscribe: func() (watch.Events, error) {
				mu.Lock()
				defer mu.Unlock()
				if nextSucceeds {
					nextSucceeds = false
					return brokenEvents{}, nil
				}
				return nil, errors.New("not permitted")
			},
			Report: func(r hostrules.Report) {
				mu.Lock()
				defer mu.Unlock()
				if r.Kind == hostrules.Unwatched {
					reports++
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); guard.Run(ctx) }()
		for want := 1; want <= 2; want++ {
			time.Sleep(time.Hour)
			mu.Lock()
			if reports != want {
				t.Errorf("%d reports after %d hours, want %d", reports, want, want)
			}
			nextSucceeds = true
			mu.Unlock()
		}
		cancel()
		<-done
	})
}

// TestReloadOfFirewalldKeepsTheRules covers a reload of firewalld, which replaces its own table in
// transactions, and flushes all tables of iptables, including rules of other programs. The node's
// rules in nf_tables stay.
func TestReloadOfFirewalldKeepsTheRules(t *testing.T) {
	listing, err := os.ReadFile("../../nft/testdata/programs/firewalld.nft")
	must(t, err)
	env := newTestEnv(t, compat.BackendNFT)
	env.options.Interval = time.Hour
	env.Guard = hostrules.New(env.options)
	env.run()
	env.runOnNode(string(listing), "nft", "-f", "-")
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	for range 3 {
		begin := time.Now()
		env.runOnNode("delete table inet firewalld\n"+string(listing), "nft", "-f", "-")
		env.runOnNode("*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-nft-restore")
		env.runOnNode("*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-legacy-restore")
		rulestest.Eventually(t, "the rules are compared", func() bool { return env.State().ComparedAt.After(begin) })
		if !env.hasRules("10.0.0.1") {
			t.Error("the reload has changed the guard's rules")
		}
	}
	if n := env.countReports(hostrules.Repaired); n > 0 {
		t.Errorf("%d repairs, want none", n)
	}
}

// TestRulesInNFTablesNeedNoRawSockets checks that an agent with the nft backend needs no
// CAP_NET_RAW, even on a node where another program uses iptables-legacy.
func TestRulesInNFTablesNeedNoRawSockets(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	env.runOnNode("", "iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT")
	env.options.Do = env.withoutNetRaw
	env.Guard = hostrules.New(env.options)
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !env.hasRules("10.0.0.1") {
		t.Error("the node does not have the rules for the pod")
	}
	must(t, env.Uninstall())
	if installed, err := compat.InstalledBackends(env.host); err != nil || len(installed) > 0 {
		t.Errorf("after uninstallation: rules in the backends %v, error %v; want neither", installed, err)
	}
}

// TestRemovalNeedsNoRawSockets checks that the rules of an earlier agent are removed from both
// backends without CAP_NET_RAW.
func TestRemovalNeedsNoRawSockets(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			env := newTestEnv(t, backend)
			env.runOnNode("", "iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT")
			must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
			must(t, env.withoutNetRaw(func() error {
				removed, err := hostrules.RemoveRules(env.options.Lock)
				if !removed {
					t.Error("no rules were removed")
				}
				return err
			}))
			if env.hasRules("10.0.0.1") {
				t.Error("rules remain on the node")
			}
		})
	}
}

// withoutNetRaw calls fn in the node's network namespace, on a new thread without CAP_NET_RAW.
func (env *testEnv) withoutNetRaw(fn func() error) error {
	return netnstest.OnNewThread(func() error {
		if err := unix.Setns(env.host.FD(), unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := netnstest.DropCapabilities(unix.CAP_NET_RAW); err != nil {
			return err
		}
		return fn()
	})
}

// runOnNode runs a program on the node.
func (env *testEnv) runOnNode(input, program string, args ...string) {
	env.t.Helper()
	c := exec.Command(netnstest.RequireBinary(env.t, program), args...)
	c.Stdin = strings.NewReader(input)
	if err := env.host.Do(func() error {
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w; output: %s", c, err, out)
		}
		return nil
	}); err != nil {
		env.t.Fatal(err)
	}
}

// TestLegacyRulesAreRestored checks that rules of iptables-legacy are restored too, although the
// kernel sends no events about their changes.
func TestLegacyRulesAreRestored(t *testing.T) {
	env := newTestEnv(t, compat.BackendLegacy)
	env.options.Interval = 10 * time.Millisecond
	env.Guard = hostrules.New(env.options)
	env.run()
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if _, err := env.backend.Remove(env.host); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the rules are restored", func() bool { return env.hasRules("10.0.0.1") })
	rulestest.Eventually(t, "the repair is reported", func() bool { return env.countReports(hostrules.Repaired) == 1 })
	// A reload of firewalld does this if iptables is iptables-legacy.
	env.runOnNode("*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-legacy-restore")
	rulestest.Eventually(t, "the rules are restored", func() bool { return env.hasRules("10.0.0.1") })
	rulestest.Eventually(t, "the repair is reported", func() bool { return env.countReports(hostrules.Repaired) == 2 })
}

// TestRulesFollowARestartedKubelet covers a kubelet that is absent for a while, and whose cgroup
// systemd creates again.
func TestRulesFollowARestartedKubelet(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	env.run()
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !env.hasRules("10.0.0.1") {
		t.Fatal("the node does not have the rules for the pod")
	}
	env.mu.Lock()
	before := env.kubelet
	env.kubeletErr = errors.New("no kubelet")
	env.mu.Unlock()
	rulestest.Eventually(t, "the kubelet is missing", func() bool { return env.State().KubeletErr != nil })
	if !env.hasRules("10.0.0.1") {
		t.Error("the rules have changed while the kubelet is missing")
	}
	path := fmt.Sprintf("sluice-test-%d-again", os.Getpid())
	_, cgroup := netnstest.NewCgroup(t, path)
	env.mu.Lock()
	env.kubelet, env.kubeletErr = kubeletIn(cgroup), nil
	env.mu.Unlock()
	rulestest.Eventually(t, "the rules have the kubelet's new cgroup", func() bool { return env.hasRules("10.0.0.1") })
	rulestest.Eventually(t, "the kubelet's restart is reported", func() bool { return env.countReports(hostrules.KubeletChanged) == 1 })
	if before.Cgroup.ID == cgroup.ID || env.countReports(hostrules.Repaired)+env.countReports(hostrules.KubeletMissing) > 0 {
		t.Errorf("reports %v, want only the changed kubelet", env.reports)
	}
}

// TestMissingKubeletIsReportedOnce checks that a kubelet that stays missing is reported, once.
func TestMissingKubeletIsReportedOnce(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	env.options.RestartTime = time.Second
	env.Guard = hostrules.New(env.options)
	env.run()
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	env.mu.Lock()
	env.kubeletErr = errors.New("no kubelet")
	env.mu.Unlock()
	rulestest.Eventually(t, "the missing kubelet is reported", func() bool {
		return env.countReports(hostrules.KubeletMissing) == 1
	})
	if err := env.State().KubeletErr; err == nil || !env.hasRules("10.0.0.1") {
		t.Errorf("kubelet error %v, want an error and unchanged rules", err)
	}
}

func TestWithoutAKubeletProbesOfUser0Match(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	env.kubeletErr = errors.New("no kubelet")
	env.kubelet = hostrules.Kubelet{}
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !env.hasRules("10.0.0.1") || env.countReports(hostrules.KubeletMissing) != 1 || env.State().KubeletErr == nil {
		t.Errorf("reports %v, want one of the missing kubelet, and rules for probes of user 0", env.reports)
	}
}

// TestConcurrentChangesShareWrites checks that many ADDs share few writes.
func TestConcurrentChangesShareWrites(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	var reconciliations atomic.Int32
	env.options.Do = func(fn func() error) error {
		reconciliations.Add(1)
		return env.host.Do(fn)
	}
	env.Guard = hostrules.New(env.options)
	env.run()
	must(t, env.Replace(nil))
	var group sync.WaitGroup
	var all []string
	for i := range 100 {
		address := fmt.Sprintf("10.1.0.%d", i+1)
		all = append(all, address)
		group.Go(func() {
			if err := env.Set(address, addresses(address)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if !env.hasRules(all...) {
		t.Error("the rules do not contain all pods")
	}
	if n := env.countReports(hostrules.Repaired); n > 0 {
		t.Errorf("%d repairs of the guard's own writes, want none", n)
	}
	// Each write is followed by a comparison, because of its event.
	n := reconciliations.Load()
	t.Logf("%d reconciliations", n)
	if n > 50 {
		t.Errorf("%d reconciliations for 100 pods, want at most 50", n)
	}
}

// TestLegacyTablesAreWrittenWithTheLock checks that the guard writes tables of iptables-legacy only
// with the lock of the iptables programs. This includes a guard with the nft backend that removes
// the rules of an earlier agent.
func TestLegacyTablesAreWrittenWithTheLock(t *testing.T) {
	pods := map[string][]netip.Addr{"a": addresses("10.0.0.1")}
	env := newTestEnv(t, compat.BackendLegacy)
	env.lockErr = errors.New("another program has it")
	if err := env.Replace(pods); !errors.Is(err, env.lockErr) || env.hasRules("10.0.0.1") {
		t.Errorf("Replace without the lock: error %v, want %v and no rules", err, env.lockErr)
	}
	env.lockErr = nil
	if err := env.Set("a", addresses("10.0.0.1")); err != nil || env.locks != 1 || !env.hasRules("10.0.0.1") {
		t.Fatalf("with iptables-legacy: error %v, locked %d times; want the rules, locked once", err, env.locks)
	}
	var err error
	if env.backend, err = compat.Choose(compat.BackendNFT); err != nil {
		t.Fatal(err)
	}
	env.options.Backend = env.backend
	env.Guard = hostrules.New(env.options)
	if err := env.Replace(pods); err != nil || env.locks != 2 || !env.hasRules("10.0.0.1") {
		t.Errorf("at the first write with nftables: error %v, locked %d times; want the rules, locked twice", err, env.locks)
	}
	if err := env.Set("b", addresses("10.0.0.2")); err != nil || env.locks != 2 {
		t.Errorf("at the second write with nftables: error %v, locked %d times; want no error, still locked twice", err, env.locks)
	}
	if err := env.Uninstall(); err != nil {
		t.Error(err)
	}
	if installed, err := compat.InstalledBackends(env.host); err != nil || len(installed) > 0 {
		t.Errorf("after uninstallation: rules in the backends %v, error %v; want neither", installed, err)
	}
}

// TestRemovalWithoutTheLockKeepsOnlyLegacyRules checks that only the rules of iptables-legacy
// remain if the lock of the iptables programs cannot be taken.
func TestRemovalWithoutTheLockKeepsOnlyLegacyRules(t *testing.T) {
	env := newTestEnv(t, compat.BackendLegacy)
	must(t, env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	p, _, _ := env.Parameters()
	rs, err := rules.CompileAmbientHost(p)
	must(t, err)
	_, err = nft.Apply(env.host, rs) // unlike the backends, it keeps the rules of other backends
	must(t, err)
	env.lockErr = errors.New("another program has it")
	remove := func() (removed bool, err error) {
		err = env.host.Do(func() (err error) {
			removed, err = hostrules.RemoveRules(env.options.Lock)
			return err
		})
		return removed, err
	}
	removed, err := remove()
	installed, installedErr := compat.InstalledBackends(env.host)
	must(t, installedErr)
	if !removed || !errors.Is(err, env.lockErr) || len(installed) != 1 ||
		installed[0].Name() != compat.BackendLegacy {
		t.Errorf("without the lock: removed %t, error %v, then rules in %v; want true, %v, only iptables-legacy",
			removed, err, installed, env.lockErr)
	}
	if removed, err := remove(); removed || !errors.Is(err, env.lockErr) {
		t.Errorf("without the lock again: removed %t, error %v; want false and %v", removed, err, env.lockErr)
	}
	env.lockErr = nil
	if removed, err := remove(); !removed || err != nil {
		t.Errorf("with the lock: removed %t, error %v; want true and no error", removed, err)
	}
	if installed, err := compat.InstalledBackends(env.host); err != nil || len(installed) > 0 || env.locked {
		t.Errorf("after the removal: rules in %v, error %v, lock held: %t; want none", installed, err, env.locked)
	}
}

// TestWritingIsRetriedAfterOneReport checks that an error is reported once, and that writing is
// retried.
func TestWritingIsRetriedAfterOneReport(t *testing.T) {
	env := newTestEnv(t, compat.BackendNFT)
	broken := errors.New("the kernel rejects the rules")
	var mu sync.Mutex
	failing := true
	env.options.Do = func(fn func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if failing {
			return broken
		}
		return env.host.Do(fn)
	}
	env.Guard = hostrules.New(env.options)
	if err := env.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}); !errors.Is(err, broken) {
		t.Errorf("Replace: error %v, want %v", err, broken)
	}
	env.run()
	if err := env.Set("a", addresses("10.0.0.1")); !errors.Is(err, broken) {
		t.Errorf("Set: error %v, want %v", err, broken)
	}
	if n := env.countReports(hostrules.Failed); n != 1 || !errors.Is(env.State().Err, broken) {
		t.Errorf("%d reports of a failure, want 1; state %+v", n, env.State())
	}
	mu.Lock()
	failing = false
	mu.Unlock()
	rulestest.Eventually(t, "the rules are written", func() bool { return env.hasRules("10.0.0.1") })
}
