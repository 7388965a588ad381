package hostrules_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/hostrules"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A testEnv is a node with a guard, whose kubelet the test controls.
type testEnv struct {
	t       testing.TB
	host    *netns.NS
	backend compat.Backend
	options hostrules.Options
	*hostrules.Guard

	mu      sync.Mutex
	kubelet hostrules.Kubelet
	missing error // the error of FindKubelet
	reports []hostrules.Report
	locks   int
	locked  bool
	busy    error // the error of the lock
}

func (w *testEnv) lock() (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy != nil {
		return nil, w.busy
	}
	if w.locks++; w.locked {
		w.t.Error("locked twice")
	}
	w.locked = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.locked = false
	}, nil
}

func newTestEnv(t testing.TB, backend compat.BackendName) *testEnv {
	t.Helper()
	netnstest.RequireRoot(t)
	w := &testEnv{t: t, host: netnstest.New(t)}
	_, id := newCgroup(t, fmt.Sprintf("sluice-test-%d-guard", os.Getpid()))
	w.kubelet = kubeletIn(fmt.Sprintf("sluice-test-%d-guard", os.Getpid()), id)
	var err error
	if w.backend, err = compat.Choose(backend); err != nil {
		t.Fatal(err)
	}
	w.options = hostrules.Options{
		Parameters: rules.DefaultAmbientHost(), Backend: w.backend,
		Open: func() (*netns.NS, error) { return netns.FromHandle(w.host.Handle()) },
		Do:   w.host.Do, Lock: w.lock, FindKubelet: w.find,
		IsKubeletCurrent: func(k hostrules.Kubelet) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.missing == nil && k == w.kubelet
		},
		Subscribe: func() (hostrules.Events, error) { return watch.Open() },
		Report: func(r hostrules.Report) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, r)
		},
	}
	w.Guard = hostrules.New(w.options)
	return w
}

func kubeletIn(path string, id uint64) hostrules.Kubelet {
	k := hostrules.Kubelet{PID: os.Getpid(), Cgroup: rules.CgroupOf(path)}
	k.Cgroup.ID = id
	return k
}

func (w *testEnv) find() (hostrules.Kubelet, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kubelet, w.missing
}

// run runs the guard until the test ends.
func (w *testEnv) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// hasRules reports whether the node has exactly the rules for the pods.
func (w *testEnv) hasRules(pods ...string) bool {
	w.t.Helper()
	p := rules.DefaultAmbientHost()
	w.mu.Lock()
	p.Kubelet, p.KubeletUID = w.kubelet.Cgroup, w.kubelet.UID
	w.mu.Unlock()
	p.Pods = addresses(pods...)
	rs, err := rules.CompileAmbientHost(p)
	if err != nil {
		w.t.Fatal(err)
	}
	found, err := w.backend.Check(w.host, rs, compat.Snapshot{})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(found.Differences) == 0
}

// countReports returns the number of reports of a kind.
func (w *testEnv) countReports(kind hostrules.ReportKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.reports {
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
			w := newTestEnv(t, b)
			if err := w.Set("early", addresses("10.0.0.9")); err == nil {
				t.Error("a pod is accepted before the other pods are known")
			}
			must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1", "fd00::1")}))
			must(t, w.Set("b", addresses("10.0.0.2", "127.0.0.1", "fe80::1", "::ffff:10.0.0.3")))
			if !w.hasRules("10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.3") {
				t.Error("the rules do not contain the addresses of both pods")
			}
			// An address is assigned to another pod before its previous one is removed.
			must(t, w.Set("c", addresses("10.0.0.1")))
			must(t, w.Remove("a"))
			if !w.hasRules("10.0.0.1", "10.0.0.2", "10.0.0.3") {
				t.Error("the rules do not contain the address of the pod that still has it")
			}
			must(t, w.Remove("unknown"))
			must(t, w.Replace(map[string][]netip.Addr{"d": addresses("10.0.0.4")}))
			if !w.hasRules("10.0.0.4") {
				t.Error("the rules do not contain the replaced pods")
			}
			if s := w.State(); s.Pods != 1 || s.Backend != b || s.Err != nil || !s.Loaded {
				t.Errorf("state %+v", s)
			}
			must(t, w.Uninstall())
			if installed, err := compat.InstalledBackends(w.host); err != nil || len(installed) > 0 {
				t.Errorf("after uninstallation: %v, %v", installed, err)
			}
			must(t, w.Set("late", addresses("10.0.0.5")))
			if installed, err := compat.InstalledBackends(w.host); err != nil || len(installed) > 0 {
				t.Errorf("rules were written after uninstallation: %v, %v", installed, err)
			}
		})
	}
}

// TestNothingIsWrittenBeforeThePodsAreKnown checks that the rules of an earlier agent are kept
// until the pods are known.
func TestNothingIsWrittenBeforeThePodsAreKnown(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	later := hostrules.New(w.options)
	w.Guard = later
	w.run()
	for range 3 {
		_ = later.Set("b", addresses("10.0.0.2"))
		if !w.hasRules("10.0.0.1") {
			t.Fatal("the rules of the earlier agent have changed")
		}
	}
	must(t, later.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !w.hasRules("10.0.0.1") || w.countReports(hostrules.Repaired) > 0 {
		t.Errorf("reports %v", w.reports)
	}
}

func TestFlushedRulesAreRestored(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	w.options.Interval = time.Hour // only events trigger repairs
	w.Guard = hostrules.New(w.options)
	w.run()
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	for i := range 3 {
		w.runOnNode("", "nft", "flush", "ruleset")
		rulestest.Eventually(t, "the rules are restored", func() bool { return w.hasRules("10.0.0.1") })
		rulestest.Eventually(t, "the repair is reported", func() bool { return w.countReports(hostrules.Repaired) == i+1 })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The process is unknown if the guard finds the rules missing before it reads the event, as it
	// may after its own change.
	if !slices.ContainsFunc(w.reports, func(r hostrules.Report) bool {
		return strings.Contains(r.String(), "are restored") && strings.Contains(r.String(), `by process "nft"`)
	}) {
		t.Error(w.reports)
	}
}

// TestFirewalldReloads covers a reload of firewalld, which replaces its own table in transactions,
// and flushes all tables of iptables, including rules of other programs. The node's rules in
// nf_tables stay.
func TestFirewalldReloads(t *testing.T) {
	listing, err := os.ReadFile("../../nft/testdata/programs/firewalld.nft")
	must(t, err)
	w := newTestEnv(t, compat.BackendNFT)
	w.options.Interval = time.Hour
	w.Guard = hostrules.New(w.options)
	w.run()
	w.runOnNode(string(listing), "nft", "-f", "-")
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	for range 3 {
		begin := time.Now()
		w.runOnNode("delete table inet firewalld\n"+string(listing), "nft", "-f", "-")
		w.runOnNode("*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-nft-restore")
		w.runOnNode("*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-legacy-restore")
		rulestest.Eventually(t, "the rules are compared", func() bool { return w.State().ComparedAt.After(begin) })
		if !w.hasRules("10.0.0.1") {
			t.Error("the rules have changed")
		}
	}
	if n := w.countReports(hostrules.Repaired); n > 0 {
		t.Errorf("%d repairs", n)
	}
}

// TestRulesInNFTablesNeedNoRawSockets checks that an agent with the nft backend needs no
// CAP_NET_RAW, also on a node where another program uses iptables-legacy.
func TestRulesInNFTablesNeedNoRawSockets(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	w.runOnNode("", "iptables-legacy", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT")
	w.options.Do = func(fn func() error) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlock, so that the thread ends
			err := unix.Setns(w.host.FD(), unix.CLONE_NEWNET)
			if err == nil {
				err = dropNetRaw()
			}
			if err == nil {
				err = fn()
			}
			done <- err
		}()
		return <-done
	}
	w.Guard = hostrules.New(w.options)
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !w.hasRules("10.0.0.1") {
		t.Error("there are no rules")
	}
}

// dropNetRaw removes CAP_NET_RAW from the effective capabilities of the thread.
func dropNetRaw() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_NET_RAW
	return unix.Capset(&header, &data[0])
}

// runOnNode runs a program on the node.
func (w *testEnv) runOnNode(input, program string, args ...string) {
	w.t.Helper()
	c := exec.Command(netnstest.RequireBinary(w.t, program), args...)
	c.Stdin = strings.NewReader(input)
	if err := w.host.Do(func() error {
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// TestLegacyRulesAreRestored checks that rules of iptables-legacy, whose changes are not reported,
// are restored too.
func TestLegacyRulesAreRestored(t *testing.T) {
	w := newTestEnv(t, compat.BackendLegacy)
	w.options.Interval = 10 * time.Millisecond
	w.Guard = hostrules.New(w.options)
	w.run()
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if _, err := w.backend.Remove(w.host); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the rules are restored", func() bool { return w.hasRules("10.0.0.1") })
	rulestest.Eventually(t, "the repair is reported", func() bool { return w.countReports(hostrules.Repaired) == 1 })
	// firewalld's reload, if iptables is iptables-legacy.
	w.runOnNode("*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-legacy-restore")
	rulestest.Eventually(t, "the rules are restored", func() bool { return w.hasRules("10.0.0.1") })
	rulestest.Eventually(t, "the repair is reported", func() bool { return w.countReports(hostrules.Repaired) == 2 })
}

// TestKubeletRestarts covers a kubelet that is absent for a while, and whose cgroup systemd creates
// again.
func TestKubeletRestarts(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	w.run()
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !w.hasRules("10.0.0.1") {
		t.Fatal("no rules")
	}
	w.mu.Lock()
	before := w.kubelet
	w.missing = errors.New("no kubelet")
	w.mu.Unlock()
	rulestest.Eventually(t, "the kubelet is missing", func() bool { return w.State().KubeletErr != nil })
	if !w.hasRules("10.0.0.1") {
		t.Error("the rules are removed without a kubelet")
	}
	path := fmt.Sprintf("sluice-test-%d-again", os.Getpid())
	_, id := newCgroup(t, path)
	w.mu.Lock()
	w.kubelet, w.missing = kubeletIn(path, id), nil
	w.mu.Unlock()
	rulestest.Eventually(t, "the rules have the kubelet's new cgroup", func() bool { return w.hasRules("10.0.0.1") })
	rulestest.Eventually(t, "the kubelet's restart is reported", func() bool { return w.countReports(hostrules.KubeletChanged) == 1 })
	if before.Cgroup.ID == id || w.countReports(hostrules.Repaired)+w.countReports(hostrules.KubeletMissing) > 0 {
		t.Errorf("reports %v", w.reports)
	}
}

// TestKubeletDoesNotRestart checks that a kubelet that stays missing is reported, once.
func TestKubeletDoesNotRestart(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	w.options.RestartTime = time.Second
	w.Guard = hostrules.New(w.options)
	w.run()
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	w.mu.Lock()
	w.missing = errors.New("no kubelet")
	w.mu.Unlock()
	rulestest.Eventually(t, "the missing kubelet is reported", func() bool {
		return w.countReports(hostrules.KubeletMissing) == 1
	})
	if err := w.State().KubeletErr; err == nil || !w.hasRules("10.0.0.1") {
		t.Errorf("state: %v", err)
	}
}

func TestKubeletIsMissingAtTheStart(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	w.missing = errors.New("no kubelet")
	w.kubelet = hostrules.Kubelet{}
	must(t, w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}))
	if !w.hasRules("10.0.0.1") || w.countReports(hostrules.KubeletMissing) != 1 || w.State().KubeletErr == nil {
		t.Errorf("no rules for probes of any process of root; reports %v", w.reports)
	}
}

// TestManyPodsAtOnce checks that many ADDs share few writes.
func TestManyPodsAtOnce(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	var reconciliations atomic.Int32
	w.options.Do = func(fn func() error) error {
		reconciliations.Add(1)
		return w.host.Do(fn)
	}
	w.Guard = hostrules.New(w.options)
	w.run()
	must(t, w.Replace(nil))
	var group sync.WaitGroup
	var all []string
	for i := range 100 {
		address := fmt.Sprintf("10.1.0.%d", i+1)
		all = append(all, address)
		group.Go(func() {
			if err := w.Set(address, addresses(address)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if !w.hasRules(all...) {
		t.Error("the rules do not contain all pods")
	}
	if n := w.countReports(hostrules.Repaired); n > 0 {
		t.Errorf("%d repairs of the guard's own writes", n)
	}
	// Each write is followed by a comparison, because of its event.
	n := reconciliations.Load()
	t.Logf("%d reconciliations", n)
	if n > 50 {
		t.Errorf("%d reconciliations for 100 pods, want at most 50", n)
	}
}

// TestLegacyTablesAreWrittenWithTheLock checks that tables of iptables-legacy are written only with
// the lock of the iptables programs, also if an agent with the other backend has left them.
func TestLegacyTablesAreWrittenWithTheLock(t *testing.T) {
	pods := map[string][]netip.Addr{"a": addresses("10.0.0.1")}
	w := newTestEnv(t, compat.BackendLegacy)
	w.busy = errors.New("another program has it")
	if err := w.Replace(pods); !errors.Is(err, w.busy) || w.hasRules("10.0.0.1") {
		t.Errorf("written without the lock: %v", err)
	}
	w.busy = nil
	if err := w.Set("a", addresses("10.0.0.1")); err != nil || w.locks != 1 || !w.hasRules("10.0.0.1") {
		t.Fatalf("%v, locked %d times", err, w.locks)
	}
	var err error
	if w.backend, err = compat.Choose(compat.BackendNFT); err != nil {
		t.Fatal(err)
	}
	w.options.Backend = w.backend
	w.Guard = hostrules.New(w.options)
	if err := w.Replace(pods); err != nil || w.locks != 2 || !w.hasRules("10.0.0.1") {
		t.Errorf("with nftables: %v, locked %d times", err, w.locks)
	}
	if err := w.Set("b", addresses("10.0.0.2")); err != nil || w.locks != 2 {
		t.Errorf("after the first write with nftables: %v, locked %d times", err, w.locks)
	}
	if err := w.Uninstall(); err != nil {
		t.Error(err)
	}
	if installed, err := compat.InstalledBackends(w.host); err != nil || len(installed) > 0 {
		t.Errorf("after uninstallation: %v, %v", installed, err)
	}
}

// TestRulesThatCannotBeWritten checks that an error is reported once, and that writing is retried.
func TestRulesThatCannotBeWritten(t *testing.T) {
	w := newTestEnv(t, compat.BackendNFT)
	broken := errors.New("the kernel rejects the rules")
	var mu sync.Mutex
	failing := true
	w.options.Do = func(fn func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if failing {
			return broken
		}
		return w.host.Do(fn)
	}
	w.Guard = hostrules.New(w.options)
	if err := w.Replace(map[string][]netip.Addr{"a": addresses("10.0.0.1")}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	w.run()
	if err := w.Set("a", addresses("10.0.0.1")); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if n := w.countReports(hostrules.Failed); n != 1 || !errors.Is(w.State().Err, broken) {
		t.Errorf("%d reports", n)
	}
	mu.Lock()
	failing = false
	mu.Unlock()
	rulestest.Eventually(t, "the rules are written", func() bool { return w.hasRules("10.0.0.1") })
}
