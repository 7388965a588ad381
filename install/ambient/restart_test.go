package ambient_test

import (
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

func apply(t testing.TB, e compat.BackendName, ns *netns.NS, rs rules.Ruleset) {
	t.Helper()
	b, err := compat.Choose(e)
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

func plain(p *decide.Pod) { p.Metadata.Labels = map[string]string{} }

// TestRulesOfAKilledAgentAreRemoved covers an agent that was killed after installing the rules and
// before the annotation, and a label that is removed before the next agent starts. Rules of a
// sidecar are kept.
func TestRulesOfAKilledAgentAreRemoved(t *testing.T) {
	for _, e := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(e), func(t *testing.T) {
			w := newTestEnv(t)
			left, sidecar, later := netnstest.New(t), netnstest.New(t), netnstest.New(t)
			apply(t, e, left, ambientRules(t))
			apply(t, e, later, ambientRules(t))
			apply(t, e, sidecar, rules.MustCompile(rules.DefaultRedirect()))
			w.put("left", running("10.0.0.7"), plain)
			w.home("left", left)
			w.put("sidecar", running("10.0.0.8"), plain)
			w.home("sidecar", sidecar)
			w.put("later", running("10.0.0.9"), plain) // its network namespace is not found yet
			w.start()
			rulestest.Eventually(t, "the rules are removed", func() bool { return bare(t, left) })
			if bare(t, sidecar) {
				t.Error("the rules to the sidecar are removed")
			}
			w.home("later", later)
			w.Changed("shop", "later")
			rulestest.Eventually(t, "the rules of the pod that is found later are removed", func() bool { return bare(t, later) })
			if got := w.patched(); got != "" {
				t.Errorf("patches: %s", got)
			}
		})
	}
}

// TestStaticPodAfterARestart covers a static pod, which has another UID in the kubelet, by which
// the agent finds it again.
func TestStaticPodAfterARestart(t *testing.T) {
	w := newTestEnv(t)
	ns := netnstest.New(t)
	w.put("static", running("10.0.0.7"), annotated("kubernetes.io/config.hash", "hash"),
		annotated(redirection, "enabled"))
	w.home("static", ns)
	w.mu.Lock()
	sb := w.sandboxes["uid-static"]
	delete(w.sandboxes, "uid-static")
	sb.Pod = sandbox.Pod{Namespace: "shop", Name: "static", UID: "hash", Unproven: true}
	w.sandboxes["hash"] = sb
	w.mu.Unlock()
	w.start()
	z := ztunneltest.Start(t, w.socket, nil)
	z.Wait(t, "add uid-static")
	if z.Pods()["uid-static"] != ns.ID() {
		t.Error("ztunnel gets another network namespace")
	}
	rulestest.Eventually(t, "the pod is enrolled", func() bool { return w.has(ns) })
}
