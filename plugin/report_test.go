package plugin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAgentIsNotifiedOfEveryADD checks that every outcome of an ADD is reported to the node agent
// with the words of the agent's metrics.
func TestAgentIsNotifiedOfEveryADD(t *testing.T) {
	refusing := backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		return compat.Result{}, errors.New("no nf_tables")
	}}
	pod := agent.Add{Namespace: "shop", Name: podName, UID: podUID}
	for _, row := range []struct {
		name, file string
		change     func(env *testEnv, c *sandboxCall)
		want       func(*agent.Add)
	}{
		{
			"a pod of the mesh", "sidecar", func(*testEnv, *sandboxCall) {},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "redirect", "mesh-pod", "nft"
			},
		},
		{
			"a pod whose additional IPv6 address is not captured", "sidecar",
			func(_ *testEnv, c *sandboxCall) {
				c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
				c.stdin = c.configuration()
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "redirect", "mesh-pod", "nft"
				a.Uncaptured = []string{"ipv6"}
			},
		},
		{
			"a pod with an additional IPv6 address that does not start", "sidecar",
			func(env *testEnv, c *sandboxCall) {
				env.useBackend(t, refusing)
				c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
				c.stdin = c.configuration()
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "redirect", "mesh-pod", "none"
			},
		},
		{
			"a pod that is not redirected", "istio-init", func(*testEnv, *sandboxCall) {},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "skip", "istio-init", "none"
			},
		},
		{
			"not a Kubernetes pod", "", func(_ *testEnv, c *sandboxCall) { c.args = "" },
			func(a *agent.Add) {
				*a = agent.Add{
					Result: "success", Decision: "skip", Reason: "not-kubernetes", Backend: "none",
				}
			},
		},
		{
			"a pod that cannot be read", "",
			func(env *testEnv, _ *sandboxCall) {
				env.source.err = source.WithKind(source.Unavailable, errors.New("no"))
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "unreadable", "pod-unreadable",
					"none"
			},
		},
		{
			"a pod that cannot be read and starts nevertheless", "",
			func(env *testEnv, c *sandboxCall) {
				env.source.err = source.WithKind(source.Unavailable, errors.New("no"))
				c.stdin = c.configuration(`"unreadable_pods":"skip"`)
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "unreadable",
					"pod-unreadable", "none"
			},
		},
		{
			"a pod with invalid settings", "wrong", func(*testEnv, *sandboxCall) {},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "redirect", "mesh-pod", "none"
			},
		},
		{
			"rules that the kernel rejects", "sidecar", func(env *testEnv, _ *sandboxCall) {
				env.useBackend(t, refusing)
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "redirect", "mesh-pod", "none"
			},
		},
		{
			"an invalid configuration", "sidecar", func(_ *testEnv, c *sandboxCall) {
				c.stdin = c.configuration(`"backend":"ebpf"`)
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "undecided", "undecided",
					"none"
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			env, ns := newTestEnv(t, row.file), netnstest.New(t)
			times := []time.Time{time.Unix(0, 0), time.Unix(7, 0)}
			env.Now = func() time.Time { // the first call is the start
				defer func() { times = times[max(0, len(times)-1):] }()
				return times[0]
			}
			c := newCall(t, ns)
			row.change(env, &c)
			e := env.call("ADD", c)
			want := pod
			row.want(&want)
			if elapsed := env.agent.adds[0].Duration; elapsed != 7*time.Second {
				t.Errorf("duration %v, want 7s", elapsed)
			}
			got := env.agent.last(t)
			if (got.Bytes > 0) != (got.Backend != "none") || len(env.agent.adds) != 1 {
				t.Errorf("reports: %+v, want one, with bytes if it names a backend", env.agent.adds)
			}
			got.Bytes = 0
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("ADD returns %+v; report (-want +got)\n%s", e, d)
			}
			// The agent receives the same log lines as standard error.
			if d := cmp.Diff(slices.Collect(strings.Lines(env.stderr.String())),
				env.agent.lines); d != "" {
				t.Errorf("log lines (-stderr +agent)\n%s", d)
			}
		})
	}
}

// TestOtherVerbsAreNotReported checks that verbs other than ADD send only log lines.
func TestOtherVerbsAreNotReported(t *testing.T) {
	env := newTestEnv(t, "istio-init")
	c := newCall(t, netnstest.New(t))
	for _, verb := range []string{"CHECK", "DEL", "STATUS", "GC"} {
		_ = env.call(verb, c)
	}
	if len(env.agent.adds) > 0 || len(env.agent.lines) == 0 {
		t.Errorf("reports %+v, log lines %q; want only log lines", env.agent.adds, env.agent.lines)
	}
}
