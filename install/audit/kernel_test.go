package audit_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// kernelTestEnv is a testEnv with network namespaces of the kernel.
type kernelTestEnv struct {
	*testEnv
	sandboxes map[string]sandbox.Sandbox // by UID
}

func newKernelTestEnv(t testing.TB, environ map[string]string) *kernelTestEnv {
	t.Helper()
	netnstest.RequireRoot(t)
	r := &kernelTestEnv{newTestEnv(t, environ), map[string]sandbox.Sandbox{}}
	r.options.Open, r.options.ProcessorTime = audit.Open, audit.ProcessorTime
	r.options.FindSandboxes = func(
		_ context.Context, pods []sandbox.Pod,
	) (map[sandbox.Pod]sandbox.Sandbox, map[sandbox.Pod]sandbox.Missing) {
		found := map[sandbox.Pod]sandbox.Sandbox{}
		for _, p := range pods {
			if sb, ok := r.sandboxes[p.UID]; ok {
				found[p] = sb
			}
		}
		return found, nil
	}
	r.options.Listen = watch.Subscribe
	return r
}

// add adds a running pod, whose network namespace is ns, to the node. ADD has redirected the pod
// with the backend, or was not called if the backend is empty. It returns the pod's desired rules,
// and the backend, which is nil if ADD was not called.
func (r *kernelTestEnv) add(
	name string, ns *netns.NS, backend compat.BackendName, change ...func(*rules.Redirect),
) (rules.Ruleset, compat.Backend) {
	r.t.Helper()
	p := meshPod(name)
	r.sandboxes[p.Metadata.UID] = sandbox.Sandbox{
		Path: fmt.Sprintf("/proc/self/fd/%d", ns.FD()), ID: ns.ID(),
	}
	redirect := r.redirect(p)
	redirect.IPv6 = true
	for _, f := range change {
		f(&redirect)
	}
	rs := rules.MustCompile(redirect)
	if backend == "" {
		r.put(p, running)
		return rs, nil
	}
	b, err := compat.Choose(backend)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := b.Apply(ns, rs, compat.Snapshot{}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.options.Records.Put(record.Record{
		Key:     record.Key{ContainerID: "c-" + name, IfName: "eth0"},
		Pod:     record.Pod{Namespace: "shop", Name: name, UID: p.Metadata.UID},
		Outcome: "redirect", Reason: "mesh-pod", Redirect: &redirect, Backend: backend,
	}); err != nil {
		r.t.Fatal(err)
	}
	r.put(p, running)
	return rs, b
}

// TestAPodThatMovesItsInterfaceIsUnknown covers a pod that moves its interface to another network
// namespace, which has no rules.
func TestAPodThatMovesItsInterfaceIsUnknown(t *testing.T) {
	network := newNetwork(t)
	r, _, _ := startAuditor(t, network, compat.BackendNFT)
	other := netnstest.New(t)
	err := network.Pod.Do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(eth0, other.FD())
	})
	if err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the pod counts as unknown", func() bool { return r.states() == "1 unknown" })
}

// TestATerminatingPodThatRenamesItsInterfaceIsReported covers a pod that renames its loopback
// interface in its termination grace period. It is then unknown whether the pod's traffic is
// captured, and an event reports this.
func TestATerminatingPodThatRenamesItsInterfaceIsReported(t *testing.T) {
	network := newNetwork(t)
	r, _, _ := startAuditor(t, network, compat.BackendNFT)
	r.put(meshPod("web"), terminating)
	istiotest.Run(t, network.Pod, "", "ip", "link", "set", "lo", "name", "loop")
	rulestest.Eventually(t, "the pod counts as unknown", func() bool { return r.states() == "1 unknown" })
	rulestest.Eventually(t, "an event reports the pod", func() bool { return r.takeEvents() == "RedirectUnknown" })
}

// hasRules reports whether a namespace has exactly the ruleset.
func hasRules(t testing.TB, b compat.Backend, ns *netns.NS, rs rules.Ruleset) bool {
	t.Helper()
	found, err := b.Check(ns, rs, compat.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Differences) == 0
}

func newNetwork(t testing.TB) *testbed.Network {
	t.Helper()
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
		t.Fatal(err)
	}
	return network
}

// captured reports whether a connection of the pod's application passes through the proxy.
func captured(t testing.TB, network *testbed.Network) bool {
	t.Helper()
	answer, err := network.Dial(testbed.Call{
		Network: "tcp", Owner: testbed.ApplicationOwner, To: netip.MustParseAddrPort("10.9.9.9:80"),
		Timeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer.By == testbed.Outbound
}

// TestRunningPodIsRepaired checks for each backend that the removed rules of a running pod are
// restored, and that connections are captured again.
func TestRunningPodIsRepaired(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			network := newNetwork(t)
			r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "200ms"})
			if backend == compat.BackendNFT {
				r.options.Interval = time.Hour // only events trigger audits
			}
			// The processor time of the test's polling must not count as the audit's.
			r.options.ProcessorTime = func() time.Duration { return 0 }
			rs, b := r.add("web", network.Pod, backend)
			r.start()
			rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
			if !captured(t, network) {
				t.Fatal("the connection before the removal of the rules was not captured")
			}
			for i := range 3 {
				if _, err := b.Remove(network.Pod); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				rulestest.Eventually(t, "the rules are restored", func() bool { return hasRules(t, b, network.Pod, rs) })
				t.Logf("repaired after %v", time.Since(begin))
				if !captured(t, network) {
					t.Error("the connection after the repair was not captured")
				}
				rulestest.Eventually(t, "the repair is verified", func() bool {
					return r.metric("sluice_repairs_total{drift,repair,success}") >= float64(i+1)
				})
			}
		})
	}
}

// TestUnprotectedPodIsRedirectedInTheKernel checks that a pod without rules is redirected, and that
// the repair is stored.
func TestUnprotectedPodIsRedirectedInTheKernel(t *testing.T) {
	network := newNetwork(t)
	r := newKernelTestEnv(t, nil)
	r.add("web", network.Pod, "")
	if captured(t, network) {
		t.Fatal("the connection before the repair was captured")
	}
	r.start()
	rulestest.Eventually(t, "the pod is repaired", func() bool { return r.states() == "1 redirected" })
	if !captured(t, network) {
		t.Error("the connection after the repair was not captured")
	}
	kept, err := r.options.Repairs.List()
	if e, ok := kept["uid-web"]; err != nil || !ok || e.Backend != compat.BackendNFT {
		t.Errorf("stored repairs %+v, error %v, want one of web with nft", kept, err)
	}
}

// TestRoutesAreRepaired checks that missing routes are restored like rules.
func TestRoutesAreRepaired(t *testing.T) {
	r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"})
	ns := netnstest.NewPod(t)
	rs, b := r.add("web", ns, compat.BackendNFT)
	r.start()
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
	deleteLoopbackAddress(t, ns)
	rulestest.Eventually(t, "the routes are restored", func() bool { return hasRules(t, b, ns, rs) })
	rulestest.Eventually(t, "the repair is counted", func() bool { return r.metric("sluice_drifts_total{routes}") > 0 })
}

// TestRulesAreRestoredIfIPTablesLegacyCannotBeRead checks that a table of iptables-legacy that
// cannot be read, or exceeds the limit, does not prevent the repair of nftables rules, and is
// reported.
func TestRulesAreRestoredIfIPTablesLegacyCannotBeRead(t *testing.T) {
	t.Run("a malformed table", func(t *testing.T) {
		testRepairWithUnreadableTable(t, netnstest.WriteUnreadableTable,
			"iptables-legacy ip raw: read: unexpected table layout")
	})
	t.Run("a table that is too large", func(t *testing.T) {
		testRepairWithUnreadableTable(t, func(t testing.TB, ns *netns.NS) {
			istiotest.RestoreLargeTable(t, ns, "nat")
		}, "iptables-legacy ip nat: read: the tables exceed the limit of 32 MiB")
	})
}

func testRepairWithUnreadableTable(t *testing.T, write func(testing.TB, *netns.NS), want string) {
	r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"})
	ns := netnstest.NewPod(t)
	rs, _ := r.add("web", ns, compat.BackendNFT)
	r.start()
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
	write(t, ns)
	for i := range 2 {
		if _, err := nft.RemoveRules(ns); err != nil {
			t.Fatal(err)
		}
		rulestest.Eventually(t, "the rules are restored", func() bool {
			found, err := nft.Read(ns)
			if err != nil {
				t.Fatal(err)
			}
			return len(rules.Compare(rs, found)) == 0
		})
		rulestest.Eventually(t, "the repair is counted", func() bool {
			return r.metric("sluice_repairs_total{drift,repair,error}") == float64(i+1)
		})
	}
	rulestest.Eventually(t, "the unreadable table is reported", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.events, func(e cluster.Event) bool {
			return e.Reason == "RedirectRepairFailed" &&
				strings.Contains(e.Message, want)
		})
	})
	drifts := 0.0
	for _, kind := range []string{"absent", "missing"} {
		drifts += r.metric("sluice_drifts_total{" + kind + "}")
	}
	if drifts != 2 {
		t.Errorf("%v drifts are counted, want 2", drifts)
	}
}

// TestTooLargeLegacyTableMakesThePodUnknown checks that the state of a pod is unknown if a table of
// iptables-legacy exceeds the limit: nat, which may contain rules of Sluice, or filter, which does
// not.
func TestTooLargeLegacyTableMakesThePodUnknown(t *testing.T) {
	for _, table := range []string{"nat", "filter"} {
		r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"})
		ns := netnstest.NewPod(t)
		r.add("web", ns, compat.BackendNFT)
		istiotest.RestoreLargeTable(t, ns, table)
		r.start()
		rulestest.Eventually(t, "the pod counts as unknown", func() bool { return r.states() == "1 unknown" })
	}
}

// TestAForeignTableBeforeSluicesTableIsReported covers a foreign table that translates addresses
// before Sluice's table does: the foreign table is noticed and reported, but not removed.
func TestAForeignTableBeforeSluicesTableIsReported(t *testing.T) {
	nft := netnstest.RequireBinary(t, "nft")
	r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"})
	ns := netnstest.NewPod(t)
	rs, b := r.add("web", ns, compat.BackendNFT)
	r.start()
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
	write := func(text string) {
		t.Helper()
		err := ns.Do(func() error { return exec.CommandContext(t.Context(), nft, text).Run() })
		if err != nil {
			t.Fatal(err)
		}
	}
	write(`table ip evil { chain c { type nat hook output priority -150; tcp dport 80 dnat to 10.9.9.8; }; }`)
	rulestest.Eventually(t, "the table is noticed", func() bool { return r.states() == "1 drifted" })
	rulestest.Eventually(t, "the table is reported", func() bool { return strings.Contains(r.takeEvents(), "RedirectBypassed") })
	if !hasRules(t, b, ns, rs) {
		t.Error("Sluice's rules have changed")
	}
	write(`delete table ip evil`)
	rulestest.Eventually(t, "the pod counts as redirected", func() bool { return r.states() == "1 redirected" })
}

// BenchmarkAudit measures the CPU time of the process for an audit of each of 250 idle pods.
func BenchmarkAudit(b *testing.B) {
	for _, row := range []struct {
		name     string
		backend  compat.BackendName
		counters bool
	}{
		{"nft", compat.BackendNFT, false},
		{"nft with counters", compat.BackendNFT, true},
		{"legacy", compat.BackendLegacy, false},
		{"legacy with counters", compat.BackendLegacy, true},
	} {
		b.Run(row.name, func(b *testing.B) {
			const pods = 250
			r := newKernelTestEnv(b, map[string]string{"SLUICE_AUDIT_INTERVAL": "24h"})
			for i := range pods {
				r.add(fmt.Sprintf("pod-%d", i), netnstest.NewPod(b), row.backend,
					func(r *rules.Redirect) { r.Counters = row.counters })
			}
			r.start()
			compared := func() float64 { return r.metric("sluice_audits_total{equal}") }
			rulestest.Eventually(b, "all pods are audited", func() bool { return compared() >= pods })
			runtime.GC()
			begin := audit.ProcessorTime()
			for b.Loop() {
				from := compared()
				for _, item := range r.Pods() {
					r.QueueAudit(item.UID)
				}
				rulestest.Eventually(b, "all pods are audited", func() bool { return compared() >= from+pods })
			}
			used := audit.ProcessorTime() - begin
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*pods), "cpu-µs/pod")
			b.ReportMetric(1000*used.Seconds()/float64(b.N*pods)/60*100, "%core/1000pods/min")
		})
	}
}

// deleteLoopbackAddress removes the address ::6 from lo. The kernel then removes its route.
func deleteLoopbackAddress(t *testing.T, ns *netns.NS) {
	t.Helper()
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrDel(lo,
			&netlink.Addr{IPNet: netlink.NewIPNet(rules.PassthroughIPv6().AsSlice())})
	})
	if err != nil {
		t.Fatal(err)
	}
}
