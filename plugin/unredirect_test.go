package plugin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// TestRepeatedADDRemovesTheRulesOfASkippedPod checks that a repeated ADD removes the rules of a
// pod that was redirected and is now skipped.
func TestRepeatedADDRemovesTheRulesOfASkippedPod(t *testing.T) {
	for _, row := range []struct {
		name, backend string
		change        func(env *testEnv, c *sandboxCall)
		reason        string
	}{
		{"its injection is reverted", "nft", func(env *testEnv, _ *sandboxCall) {
			env.source.pod = readPod(t, "not-injected")
		}, "not-injected"},
		{"its injection is reverted, with the legacy backend", "legacy", func(env *testEnv, _ *sandboxCall) {
			env.source.pod = readPod(t, "not-injected")
		}, "not-injected"},
		{
			"its namespace is excluded", "nft",
			func(_ *testEnv, c *sandboxCall) {
				c.stdin = c.configuration(`"exclude_namespaces":["shop"]`)
			}, "namespace-excluded",
		},
		{"it is not a Kubernetes pod", "nft", func(_ *testEnv, c *sandboxCall) {
			c.args = ""
		}, "not-kubernetes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			c.stdin = c.configuration(`"backend":"` + row.backend + `"`)
			env.add(t, c)
			checkHasRules(t, ns)
			row.change(env, &c)
			env.stderr.Reset()
			if got := env.add(t, c); got != c.prevResult {
				t.Errorf("result: %s, want the previous one", got)
			}
			checkNoRules(t, ns)
			if r := c.record(t); r.Outcome != "skip" || r.Reason != row.reason ||
				r.Redirect != nil || r.Backend != "" {
				t.Errorf("record: %+v, want skip (%s)", r, row.reason)
			}
			if line := env.logLines(t)[0]; line["outcome"] != "removed" {
				t.Errorf("log: %v, want the outcome removed", line)
			}
			if e := env.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %+v", e)
			}
		})
	}
}

// TestRepeatedADDKeepsTheRulesOfAnUnreadablePod checks that the pod stays redirected if it is
// unknown whether it still belongs to the mesh.
func TestRepeatedADDKeepsTheRulesOfAnUnreadablePod(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	env.add(t, c)
	env.source.err = source.WithKind(source.Unavailable, errors.New("no answer"))
	c.stdin = c.configuration(`"unreadable_pods":"skip"`)
	env.add(t, c)
	checkHasRules(t, ns)
	if r := c.record(t); r.Redirect == nil || r.Reason != "mesh-pod" {
		t.Errorf("record: %+v, want the record of the first ADD", r)
	}
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
}

// TestCHECKToleratesRulesOfAnUnreadablePod checks that CHECK does not report rules as unexpected
// if the pod cannot be read and its record is missing or inconclusive: the agent may have installed
// them.
func TestCHECKToleratesRulesOfAnUnreadablePod(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	env.add(t, newCall(t, ns))
	env.source.err = source.WithKind(source.Unavailable, errors.New("no answer"))
	c := newCall(t, ns) // another run directory without a record
	c.stdin = c.configuration(`"unreadable_pods":"skip"`)
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("without a record: %+v, want success", e)
	}
	env.add(t, c)
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("with an inconclusive record: %+v, want success", e)
	}
}

// TestRepeatedADDFailsIfRulesCannotBeRemoved covers rules that cannot be removed: they would
// continue to redirect the pod to a proxy that it may not have.
func TestRepeatedADDFailsIfRulesCannotBeRemoved(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	env.add(t, c)
	env.source.pod = readPod(t, "not-injected")
	env.Backend = func(compat.BackendName) (compat.Backend, error) {
		return nil, errors.New("the kernel rejects it")
	}
	e := env.call("ADD", c)
	if e == nil || e.Code != 102 || !strings.HasSuffix(e.Msg, " cannot be removed") ||
		e.Details != "the kernel rejects it" {
		t.Errorf("ADD: %+v, want code 102 and the error of the kernel", e)
	}
	// Only the first ADD printed its result.
	if env.stdout.String() != c.prevResult {
		t.Errorf("standard output: %q, want only the first result", env.stdout.String())
	}
	env.Backend = compat.Choose
	env.add(t, c)
	checkNoRules(t, ns)
}

// TestCHECKReportsRulesOfASkippedPod checks that CHECK reports rules in a pod that is not
// redirected, except if its own istio-init may have installed them. If the annotations from the
// runtime or the namespace suffice for the decision, CHECK does not know whether the pod has
// istio-init.
func TestCHECKReportsRulesOfASkippedPod(t *testing.T) {
	const annotations = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}`
	injectedByHand := func(env *testEnv) {
		delete(env.source.pod.Metadata.Annotations, "sidecar.istio.io/status")
	}
	for _, row := range []struct {
		name, file string
		change     func(*testEnv)
		field      string
		reason     decide.Reason
		want       string // in the error; empty for none
	}{
		{
			"it has no proxy", "plain", nil, `"backend":"auto"`, decide.NoProxyContainer,
			"rules of Sluice exist in nft, but the pod must not be redirected (no-proxy-container)",
		},
		{
			"it has opted out", "opt-out-label", nil, `"backend":"auto"`, decide.OptOutLabel,
			"rules of Sluice exist in nft, but the pod must not be redirected (opt-out-label)",
		},
		{"it has istio-init", "istio-init", nil, `"backend":"auto"`, decide.IstioInit, ""},
		{
			"it has istio-init, injected by hand", "istio-init", injectedByHand, `"backend":"auto"`,
			decide.IstioInit, "",
		},
		{
			"it has istio-init, injected by hand, and annotations decide", "istio-init",
			injectedByHand, annotations, decide.NotInjected, "",
		},
		{"it is not injected", "not-injected", nil, `"backend":"auto"`, decide.NotInjected, ""},
		{
			"its namespace is excluded", "istio-init", nil, `"exclude_namespaces":["shop"]`,
			decide.NamespaceExcluded, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			env, ns := newTestEnv(t, row.file), netnstest.New(t)
			if row.change != nil {
				row.change(env)
			}
			c := newCall(t, ns)
			c.stdin = c.configuration(row.field)
			env.add(t, c)
			if r := c.record(t); r.Reason != string(row.reason) {
				t.Errorf("record: %+v, want %s", r, row.reason)
			}
			other := newTestEnv(t, "sidecar")
			elsewhere := newCall(t, ns) // another run directory without a record
			other.add(t, elsewhere)
			e := env.call("CHECK", c)
			switch {
			case row.want == "" && e != nil:
				t.Errorf("CHECK: %+v, want success", e)
			case row.want != "" && (e == nil || e.Code != 104 || e.Details != row.want):
				t.Errorf("CHECK: %+v, want code 104 and %q", e, row.want)
			}
		})
	}
}

// TestCHECKOfASkippedPodFailsIfRulesCannotBeRead checks that CHECK fails if it cannot determine
// whether a skipped pod has rules, here for lack of a capability.
func TestCHECKOfASkippedPodFailsIfRulesCannotBeRead(t *testing.T) {
	host := netnstest.New(t)
	env, ns := newTestEnv(t, "plain"), netnstest.New(t)
	c := newCall(t, ns)
	env.add(t, c)
	execute(t, host, "CHECK", c).checkSilent(t)
	cmd := command(t, "CHECK", c)
	cmd.Args = []string{"setpriv", "--bounding-set=-net_admin", cmd.Path}
	cmd.Path = netnstest.RequireBinary(t, "setpriv")
	e := run(t, host, cmd).mustFail(t)
	if e.Code != 103 || e.Msg != "the rules of pod shop/"+podName+" cannot be read" ||
		!strings.Contains(e.Details, "CAP_NET_ADMIN") {
		t.Errorf("CHECK: %+v, want code 103 and the missing capability", e)
	}
}
