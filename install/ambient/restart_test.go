package ambient_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func apply(t testing.TB, backend compat.BackendName, ns *netns.NS, rs rules.Ruleset) {
	t.Helper()
	b, err := compat.Choose(backend)
	if err == nil {
		_, err = b.Apply(ns, rs, compat.Snapshot{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func ambientRules(t testing.TB) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func removeLabels(p *decide.Pod) { p.Metadata.Labels = map[string]string{} }

// TestRulesOfAKilledAgentAreRemoved covers an agent that was killed after installing the rules and
// before the annotation, and a label that is removed before the next agent starts. Rules of a
// sidecar are kept.
func TestRulesOfAKilledAgentAreRemoved(t *testing.T) {
	for _, backend := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			env := newTestEnv(t)
			left, sidecar, later := netnstest.New(t), netnstest.New(t), netnstest.New(t)
			apply(t, backend, left, ambientRules(t))
			apply(t, backend, later, ambientRules(t))
			apply(t, backend, sidecar, rules.MustCompile(rules.DefaultRedirect()))
			env.put("left", running("10.0.0.7"), removeLabels)
			env.addSandbox("left", left)
			env.put("sidecar", running("10.0.0.8"), removeLabels)
			env.addSandbox("sidecar", sidecar)
			env.put("later", running("10.0.0.9"), removeLabels) // its network namespace is not found yet
			env.start()
			rulestest.Eventually(t, "the rules are removed", func() bool { return hasNoRules(t, left) })
			if hasNoRules(t, sidecar) {
				t.Error("the rules to the sidecar are removed")
			}
			env.addSandbox("later", later)
			env.Changed("shop", "later")
			rulestest.Eventually(t, "the rules of the pod that is found later are removed", func() bool { return hasNoRules(t, later) })
			if got := env.patched(); got != "" {
				t.Errorf("patches %s, want none", got)
			}
		})
	}
}

// TestPodLeavesBeforeItsNetworkNamespaceIsFound covers a pod that an earlier agent has enrolled,
// and whose network namespace is found only after the pod's label and annotation were removed.
func TestPodLeavesBeforeItsNetworkNamespaceIsFound(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	apply(t, compat.BackendNFT, ns, ambientRules(t))
	env.put("web", running("10.0.0.7"), annotated(redirection, "enabled"))
	env.start()
	rulestest.Eventually(t, "the pods are listed", env.Restored)
	env.put("web", labeled(modeLabel, "none"))
	rulestest.Eventually(t, "the annotation is removed", func() bool {
		return env.annotation("web") == ""
	})
	env.addSandbox("web", ns)
	env.Changed("shop", "web")
	rulestest.Eventually(t, "the rules are removed", func() bool { return hasNoRules(t, ns) })
}

// TestStaticPodAfterARestart covers a static pod, whose UID in the kubelet differs from its UID in
// the API server. The agent finds the sandbox by the UID in the kubelet.
func TestStaticPodAfterARestart(t *testing.T) {
	env := newTestEnv(t)
	ns := netnstest.New(t)
	env.put("static", running("10.0.0.7"), annotated("kubernetes.io/config.mirror", "hash"),
		annotated(redirection, "enabled"))
	env.addSandbox("static", ns)
	env.mu.Lock()
	sb := env.sandboxes["uid-static"]
	delete(env.sandboxes, "uid-static")
	sb.Pod = sandbox.Pod{
		Namespace: "shop", Name: "static", UID: "hash", Unproven: true,
		Address: netip.MustParseAddr("10.0.0.7"),
	}
	env.sandboxes["hash"] = sb
	env.mu.Unlock()
	env.start()
	z := ztunneltest.Start(t, env.socket, nil)
	z.Wait(t, "add uid-static")
	if z.Pods()["uid-static"] != ns.ID() {
		t.Error("ztunnel gets another network namespace")
	}
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return env.hasRules(ns) })
}
