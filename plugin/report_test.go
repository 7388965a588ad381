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

// Whatever becomes of an ADD, the node agent is told in words that it counts.
func TestAgentIsNotifiedOfEveryADD(t *testing.T) {
	refusing := backend{apply: func(*netns.NS, rules.Ruleset) (compat.Result, error) {
		return compat.Result{}, errors.New("no nf_tables")
	}}
	pod := agent.Add{Namespace: "shop", Name: podName, UID: podUID}
	for _, row := range []struct {
		name, file string
		change     func(w *world, c *sandboxCall)
		want       func(*agent.Add)
	}{
		{
			"a pod of the mesh", "sidecar", func(*world, *sandboxCall) {},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "redirect", "mesh-pod", "nft"
			},
		},
		{
			"IPv6 beside IPv4 that is left uncaptured", "sidecar",
			func(_ *world, c *sandboxCall) {
				c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
				c.stdin = c.with()
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "redirect", "mesh-pod", "nft"
				a.Uncaptured = []string{"ipv6"}
			},
		},
		{
			"one that does not start, so that nothing of it passes the proxy", "sidecar",
			func(w *world, c *sandboxCall) {
				w.use(t, refusing)
				c.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.5/24"},{"address":"fd00::5/64"}]}`
				c.stdin = c.with()
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "redirect", "mesh-pod", "none"
			},
		},
		{
			"a pod that is left alone", "istio-init", func(*world, *sandboxCall) {},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "skip", "istio-init", "none"
			},
		},
		{
			"no pod of Kubernetes", "", func(_ *world, c *sandboxCall) { c.args = "" },
			func(a *agent.Add) {
				*a = agent.Add{
					Result: "success", Decision: "skip", Reason: "not-kubernetes", Backend: "none",
				}
			},
		},
		{
			"a pod that cannot be read", "",
			func(w *world, _ *sandboxCall) {
				w.source.err = source.WithKind(source.Unavailable, errors.New("no"))
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "unreadable", "pod-unreadable",
					"none"
			},
		},
		{
			"a pod that cannot be read, and starts nevertheless", "",
			func(w *world, c *sandboxCall) {
				w.source.err = source.WithKind(source.Unavailable, errors.New("no"))
				c.stdin = c.with(`"unreadable_pods":"skip"`)
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "success", "unreadable",
					"pod-unreadable", "none"
			},
		},
		{
			"a pod with wrong settings", "wrong", func(*world, *sandboxCall) {},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "redirect", "mesh-pod", "none"
			},
		},
		{
			"rules that the kernel refuses", "sidecar", func(w *world, _ *sandboxCall) {
				w.use(t, refusing)
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "redirect", "mesh-pod", "none"
			},
		},
		{
			"a wrong configuration", "sidecar", func(_ *world, c *sandboxCall) {
				c.stdin = c.with(`"backend":"ebpf"`)
			},
			func(a *agent.Add) {
				a.Result, a.Decision, a.Reason, a.Backend = "error", "undecided", "undecided",
					"none"
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, ns := newWorld(t, row.file), netnstest.New(t)
			times := []time.Time{time.Unix(0, 0), time.Unix(7, 0)}
			w.Now = func() time.Time { // the first is the start
				defer func() { times = times[max(0, len(times)-1):] }()
				return times[0]
			}
			c := newCall(t, ns)
			row.change(w, &c)
			e := w.call("ADD", c)
			want := pod
			row.want(&want)
			if took := w.agent.adds[0].Duration; took != 7*time.Second {
				t.Errorf("duration %v", took)
			}
			got := w.agent.last(t)
			if (got.Bytes > 0) != (got.Backend != "none") || len(w.agent.adds) != 1 {
				t.Errorf("%+v", w.agent.adds)
			}
			got.Bytes = 0
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%+v (-want +got)\n%s", e, d)
			}
			// The log's lines are those on standard error, word for word.
			if d := cmp.Diff(slices.Collect(strings.Lines(w.stderr.String())),
				w.agent.lines); d != "" {
				t.Errorf("(-stderr +agent)\n%s", d)
			}
		})
	}
}

// Of the other verbs only the log tells.
func TestOtherVerbsAreNotCounted(t *testing.T) {
	w := newWorld(t, "istio-init")
	c := newCall(t, netnstest.New(t))
	for _, verb := range []string{"CHECK", "DEL", "STATUS", "GC"} {
		_ = w.call(verb, c)
	}
	if len(w.agent.adds) > 0 || len(w.agent.lines) == 0 {
		t.Errorf("%+v, %q", w.agent.adds, w.agent.lines)
	}
}
