package ambient_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// useBackend sets the backend of the next agent.
func (env *testEnv) useBackend(name compat.BackendName) {
	env.t.Helper()
	var err error
	if env.options.Backend, err = compat.Choose(name); err != nil {
		env.t.Fatal(err)
	}
}

// TestPodsAreEnrolledAndLeaveWithTheLegacyBackend checks that pods are enrolled and leave with
// iptables-legacy as with nftables.
func TestPodsAreEnrolledAndLeaveWithTheLegacyBackend(t *testing.T) {
	env := newTestEnv(t)
	env.useBackend(compat.BackendLegacy)
	started, ran := netnstest.New(t), netnstest.New(t)
	env.put("started")
	env.put("ran", running("10.0.0.8"))
	env.addSandbox("ran", ran)
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	e, err := env.add("started", started)
	if err != nil || e.Backend != "legacy" || e.Outcome != "created" || e.Rules == 0 || e.Validate() != nil {
		t.Fatalf("the enrollment is %+v, %v, want created with legacy; Validate returns %v", e, err, e.Validate())
	}
	env.addSandbox("started", started)
	env.put("started", running("10.0.0.7"))
	for name, ns := range map[string]*netns.NS{"started": started, "ran": ran} {
		rulestest.Eventually(t, name+" is enrolled", func() bool { return env.annotation(name) == "enabled" })
		if !env.hasRules(ns) || z.Pods()["uid-"+name] != ns.ID() {
			t.Errorf("%s: annotated without rules, or unknown to ztunnel", name)
		}
	}
	env.put("ran", annotated("ambient.istio.io/dns-capture", "false"))
	rulestest.Eventually(t, "an annotation changes the rules", func() bool {
		return env.hasRules(ran, func(a *rules.Ambient) { a.DNS = false })
	})
	for name, ns := range map[string]*netns.NS{"started": started, "ran": ran} {
		env.put(name, labeled(modeLabel, "none"))
		rulestest.Eventually(t, name+" leaves", func() bool { return env.annotation(name) == "" })
		if !hasNoRules(t, ns) {
			t.Errorf("%s: rules remain in the pod that has left", name)
		}
	}
}

// TestChangedBackendMovesTheRules checks that an agent with a different backend moves the rules of
// running pods to its backend, and does not report the move as drift. The rules of the earlier
// backend are removed from a pod that should leave.
func TestChangedBackendMovesTheRules(t *testing.T) {
	env := newTestEnv(t)
	stays, leaves := netnstest.New(t), netnstest.New(t)
	env.put("stays", running("10.0.0.7"))
	env.put("leaves", running("10.0.0.8"))
	env.addSandbox("stays", stays)
	env.addSandbox("leaves", leaves)
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	enabled := func(name string) func() bool {
		return func() bool { return env.annotation(name) == "enabled" && env.Count()[ambient.Pending] == 0 }
	}
	rulestest.Eventually(t, "both pods are enrolled", func() bool { return enabled("stays")() && enabled("leaves")() })
	for i, backend := range []compat.BackendName{compat.BackendLegacy, compat.BackendNFT} {
		env.stop()
		z.Stop()
		if i == 0 {
			env.put("leaves", labeled(modeLabel, "none"))
		}
		env.useBackend(backend)
		env.socket = newServer(t, env)
		env.start()
		z = ztunneltest.Start(t, env.socket, nil)
		rulestest.Eventually(t, "the rules are moved", func() bool {
			installed, err := compat.InstalledBackends(stays)
			return err == nil && len(installed) == 1 && installed[0].Name() == backend
		})
		rulestest.Eventually(t, "the pod is enrolled", enabled("stays"))
		if r := env.rulesOf("uid-stays"); r == nil || r.Backend != backend || r.TakeRepaired() != nil {
			t.Errorf("rules %+v, want rules of %s and no repaired differences", r, backend)
		} else {
			r.Release()
		}
		rulestest.Eventually(t, "the other pod leaves", func() bool { return env.annotation("leaves") == "" })
		if !env.hasRules(stays) || !hasNoRules(t, leaves) {
			t.Errorf("%s: the pod that stays has wrong rules, or the pod that has left still has rules", backend)
		}
	}
}

// TestLegacyTablesOfAPodMayBeLarge checks that pods whose tables of iptables-legacy exceed the
// limit are enrolled with nftables, are enrolled again by the next agent, and leave.
func TestLegacyTablesOfAPodMayBeLarge(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendAuto} {
		t.Run(string(backend), func(t *testing.T) {
			env := newTestEnv(t)
			env.useBackend(backend)
			started, ran := netnstest.New(t), netnstest.New(t)
			env.put("started")
			env.put("ran", running("10.0.0.8"))
			env.addSandbox("ran", ran)
			for _, ns := range []*netns.NS{started, ran} {
				istiotest.RestoreLargeTable(t, ns, "nat")
			}
			env.start()
			z := ztunneltest.Start(t, env.socket, nil)
			e, err := env.add("started", started)
			if err != nil || e.Backend != "nft" || e.Outcome != "created" {
				t.Fatalf("the enrollment is %+v, %v; want created with nft", e, err)
			}
			env.addSandbox("started", started)
			env.put("started", running("10.0.0.7"))
			pods := map[string]*netns.NS{"started": started, "ran": ran}
			enrolled := func() {
				t.Helper()
				for name, ns := range pods {
					rulestest.Eventually(t, name+" is enrolled", func() bool {
						return env.annotation(name) == "enabled" && z.Pods()["uid-"+name] == ns.ID()
					})
					if found, err := nft.Read(ns); err != nil || !found.RedirectsToZtunnel() {
						t.Errorf("%s: no rules, error %v", name, err)
					}
				}
			}
			enrolled()
			env.stop()
			env.socket = newServer(t, env)
			env.start()
			z = ztunneltest.Start(t, env.socket, nil)
			enrolled()
			for name, ns := range pods {
				env.put(name, labeled(modeLabel, "none"))
				rulestest.Eventually(t, name+" leaves", func() bool { return env.annotation(name) == "" })
				if found, err := nft.Read(ns); err != nil || len(found.Tables) > 0 {
					t.Errorf("%s: %d tables remain, error %v", name, len(found.Tables), err)
				}
			}
		})
	}
}

// TestAnnotatedPodWithLargeLegacyTablesLeaves checks that a pod with the annotation, which should
// not be in ambient mode, leaves although its tables of iptables-legacy exceed the limit.
func TestAnnotatedPodWithLargeLegacyTablesLeaves(t *testing.T) {
	env := newTestEnv(t)
	ns := env.addSandbox("web", netnstest.New(t))
	istiotest.RestoreLargeTable(t, ns, "nat")
	env.put("web", running("10.0.0.7"), labeled(modeLabel, "none"), annotated(redirection, "enabled"))
	env.start()
	rulestest.Eventually(t, "the pod leaves", func() bool { return env.annotation("web") == "" })
}

// TestPodThatCannotLeaveHasAReason checks that the status contains the reason why a pod cannot
// leave ambient mode: its network namespace cannot be opened.
func TestPodThatCannotLeaveHasAReason(t *testing.T) {
	env := newTestEnv(t)
	env.addSandbox("web", netnstest.New(t))
	env.mu.Lock()
	sb := env.sandboxes["uid-web"]
	sb.Path = "/nonexistent"
	env.sandboxes["uid-web"] = sb
	env.mu.Unlock()
	env.put("web", running("10.0.0.7"), labeled(modeLabel, "none"), annotated(redirection, "enabled"))
	env.start()
	rulestest.Eventually(t, "the reason is known", func() bool {
		pending := env.Pending()
		return len(pending) == 1 && pending[0].Err != nil
	})
}

// A slowBackend is a backend whose Check takes some time. It counts all calls, and the calls that
// begin while another one runs.
type slowBackend struct {
	compat.Backend
	running, concurrent, calls atomic.Int32
}

func (b *slowBackend) Check(
	ns *netns.NS, rs rules.Ruleset, last compat.Snapshot,
) (compat.Comparison, error) {
	b.calls.Add(1)
	if b.running.Add(1) > 1 {
		b.concurrent.Add(1)
	}
	defer b.running.Add(-1)
	time.Sleep(20 * time.Millisecond) // so that a concurrent call would begin meanwhile
	return b.Backend.Check(ns, rs, last)
}

// TestRulesAreReadOnePodAtATime checks that the starting agent does not read the rules of several
// pods at the same time, because they could exceed its memory together.
func TestRulesAreReadOnePodAtATime(t *testing.T) {
	env := newTestEnv(t)
	backend := &slowBackend{Backend: env.options.Backend}
	env.options.Backend = backend
	const pods = 5
	for i := range pods {
		name := fmt.Sprintf("web-%d", i)
		env.put(name, running("10.0.0.7"), annotated(redirection, "enabled"))
		env.addSandbox(name, netnstest.New(t))
	}
	env.start()
	ztunneltest.Start(t, env.socket, nil)
	rulestest.Eventually(t, "the pods are enrolled", func() bool { return env.Count()[ambient.Enrolled] == pods })
	if backend.concurrent.Load() > 0 || backend.calls.Load() < pods {
		t.Errorf("%d reads, %d of them at the same time as another, want at least %d, and 0",
			backend.calls.Load(), backend.concurrent.Load(), pods)
	}
}
