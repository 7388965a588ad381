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

// A pod that was redirected, and is to be left alone when ADD is called again, has no rules of
// Sluice then.
func TestRepeatedADDOfAPodThatIsNoLongerRedirected(t *testing.T) {
	for _, row := range []struct {
		name, backend string
		change        func(w *world, c *sandboxCall)
		reason        string
	}{
		{"its injection is taken back", "nft", func(w *world, _ *sandboxCall) {
			w.source.pod = readPod(t, "not-injected")
		}, "not-injected"},
		{"the same by legacy", "legacy", func(w *world, _ *sandboxCall) {
			w.source.pod = readPod(t, "not-injected")
		}, "not-injected"},
		{
			"its namespace is excluded", "nft",
			func(_ *world, c *sandboxCall) {
				c.stdin = c.with(`"exclude_namespaces":["shop"]`)
			}, "namespace-excluded",
		},
		{"it is no pod of Kubernetes", "nft", func(_ *world, c *sandboxCall) {
			c.args = ""
		}, "not-kubernetes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			c.stdin = c.with(`"backend":"` + row.backend + `"`)
			w.add(t, c)
			holds(t, ns)
			row.change(w, &c)
			w.stderr.Reset()
			if got := w.add(t, c); got != c.prevResult {
				t.Errorf("result: %s", got)
			}
			holdsNothing(t, ns)
			if r := c.record(t); r.Outcome != "skip" || r.Reason != row.reason ||
				r.Redirect != nil || r.Backend != "" {
				t.Errorf("record: %+v", r)
			}
			if line := w.logged(t)[0]; line["outcome"] != "removed" {
				t.Errorf("log: %v", line)
			}
			if e := w.call("CHECK", c); e != nil {
				t.Errorf("CHECK: %+v", e)
			}
		})
	}
}

// As long as it is not known whether the pod still belongs to the mesh, it stays redirected.
func TestRepeatedADDOfAPodThatCannotBeRead(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	w.add(t, c)
	w.source.err = source.WithKind(source.Unavailable, errors.New("no answer"))
	c.stdin = c.with(`"unreadable_pods":"skip"`)
	w.add(t, c)
	holds(t, ns)
	if r := c.record(t); r.Redirect == nil || r.Reason != "mesh-pod" {
		t.Errorf("record: %+v", r)
	}
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
}

// Neither does CHECK say that such a pod should have no rules, whose record is lost or says
// nothing: the agent may have repaired it.
func TestCHECKOfAPodThatCannotBeRead(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	w.add(t, newCall(t, ns))
	w.source.err = source.WithKind(source.Unavailable, errors.New("no answer"))
	c := newCall(t, ns) // another run directory, which has no record
	c.stdin = c.with(`"unreadable_pods":"skip"`)
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("without a record: %+v", e)
	}
	w.add(t, c)
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("with one that says nothing: %+v", e)
	}
}

// Rules that cannot be removed would go on redirecting the pod, to a proxy that it may not have.
func TestRepeatedADDFailsIfRulesCannotBeRemoved(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	w.add(t, c)
	w.source.pod = readPod(t, "not-injected")
	w.Backend = func(compat.BackendName) (compat.Backend, error) {
		return nil, errors.New("the kernel refuses")
	}
	e := w.call("ADD", c)
	if e == nil || e.Code != 102 || !strings.HasSuffix(e.Msg, " cannot be removed") ||
		e.Details != "the kernel refuses" {
		t.Errorf("%+v", e)
	}
	if w.stdout.Len() != len(c.prevResult) {
		t.Errorf("standard output: %q", w.stdout.String())
	}
	w.Backend = compat.Choose
	w.add(t, c)
	holdsNothing(t, ns)
}

// CHECK finds rules in a pod that is left alone, but for one that may make them itself: by its
// istio-init, which nobody looks for where the runtime's annotations say enough.
func TestCHECKOfAPodThatIsNotRedirected(t *testing.T) {
	const annotations = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}`
	injectedByHand := func(w *world) {
		delete(w.source.pod.Metadata.Annotations, "sidecar.istio.io/status")
	}
	for _, row := range []struct {
		name, file string
		change     func(*world)
		field      string
		reason     decide.Reason
		want       string // in the error; empty for none
	}{
		{
			"it has no proxy", "plain", nil, `"backend":"auto"`, decide.NoProxyContainer,
			"rules of Sluice exist in nft, but the pod is not redirected (no-proxy-container)",
		},
		{
			"it has opted out", "opt-out-label", nil, `"backend":"auto"`, decide.OptOutLabel,
			"rules of Sluice exist in nft, but the pod is not redirected (opt-out-label)",
		},
		{"it has istio-init", "istio-init", nil, `"backend":"auto"`, decide.IstioInit, ""},
		{
			"it has istio-init by hand", "istio-init", injectedByHand, `"backend":"auto"`,
			decide.IstioInit, "",
		},
		{
			"it has istio-init by hand, and annotations decide before", "istio-init",
			injectedByHand, annotations, decide.NotInjected, "",
		},
		{"it is not injected", "not-injected", nil, `"backend":"auto"`, decide.NotInjected, ""},
		{
			"its namespace is excluded", "istio-init", nil, `"exclude_namespaces":["shop"]`,
			decide.NamespaceExcluded, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, ns := newWorld(t, row.file), netnstest.New(t)
			if row.change != nil {
				row.change(w)
			}
			c := newCall(t, ns)
			c.stdin = c.with(row.field)
			w.add(t, c)
			if r := c.record(t); r.Reason != string(row.reason) {
				t.Errorf("record: %+v, want %s", r, row.reason)
			}
			other := newWorld(t, "sidecar")
			elsewhere := newCall(t, ns) // another run directory, of which nobody knows
			other.add(t, elsewhere)
			e := w.call("CHECK", c)
			switch {
			case row.want == "" && e != nil:
				t.Errorf("%+v", e)
			case row.want != "" && (e == nil || e.Code != 104 || e.Details != row.want):
				t.Errorf("%+v", e)
			}
		})
	}
}

// CHECK of a pod that is left alone fails, too, where it cannot see whether there are rules: here
// for lack of a capability.
func TestCHECKOfAnUnreadablePodThatIsNotRedirected(t *testing.T) {
	host := netnstest.New(t)
	w, ns := newWorld(t, "plain"), netnstest.New(t)
	c := newCall(t, ns)
	w.add(t, c)
	execute(t, host, "CHECK", c).silent(t)
	cmd := command(t, "CHECK", c)
	cmd.Args = []string{"setpriv", "--bounding-set=-net_admin", cmd.Path}
	cmd.Path = netnstest.RequireBinary(t, "setpriv")
	e := run(t, host, cmd).failed(t)
	if e.Code != 103 || e.Msg != "the rules of pod shop/"+podName+" cannot be read" ||
		!strings.Contains(e.Details, "CAP_NET_ADMIN") {
		t.Errorf("%+v", e)
	}
}
