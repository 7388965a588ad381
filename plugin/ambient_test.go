package plugin_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	vishnetns "github.com/vishvananda/netns"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// newAmbientWorld has a pod in ambient mode, and an agent that installs the rules in it.
func newAmbientWorld(t testing.TB) (*world, *netns.NS, sandboxCall) {
	t.Helper()
	w, ns := newWorld(t, "not-injected"), netnstest.New(t)
	w.source.pod.Metadata.Labels = map[string]string{"istio.io/dataplane-mode": "ambient"}
	c := newCall(t, ns)
	c.stdin = c.with(`"ambient_enabled":true`)
	w.agent.enrol = func(
		ref source.Ref, addresses []netip.Addr, fd int,
	) (*agent.Enrolment, error) {
		if ref.UID != podUID || !slices.Equal(addresses, []netip.Addr{netip.MustParseAddr("10.244.1.5")}) {
			t.Errorf("asked for %v with %v", ref, addresses)
		}
		return install(fd)
	}
	return w, ns, c
}

// install installs the rules of ambient mode as the agent does.
func install(fd int) (*agent.Enrolment, error) {
	ns, err := netns.FromHandle(vishnetns.NsHandle(fd))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	b, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		return nil, err
	}
	a := rules.DefaultAmbient()
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		return nil, err
	}
	applied, err := b.Apply(ns, rs, compat.Snapshot{})
	return &agent.Enrolment{
		Ambient: a, Backend: "nft", Outcome: string(applied.Outcome), Rules: applied.Rules,
		Notes: []string{"annotation-ignored: x"},
	}, err
}

func TestPodInAmbientModeIsEnrolledByTheAgent(t *testing.T) {
	w, ns, c := newAmbientWorld(t)
	if got := w.add(t, c); got != c.prevResult {
		t.Errorf("result: %s", got)
	}
	r := c.record(t)
	if r.Outcome != "ambient" || r.Reason != "ambient-pod" || r.Ambient == nil || r.Redirect != nil ||
		r.Backend != compat.BackendNFT {
		t.Errorf("record: %+v", r)
	}
	line := w.logged(t)[0]
	if line["decision"] != "ambient" || line["backend"] != "nft" || line["outcome"] != "created" ||
		line["notes"] != "annotation-ignored: x" {
		t.Errorf("log: %v", line)
	}
	if a := w.agent.last(t); a.Decision != "ambient" || a.Result != "success" || a.Backend != "nft" {
		t.Errorf("report: %+v", a)
	}
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
	// Without the record CHECK decides as ADD does.
	c.runDir = t.TempDir()
	c.stdin = c.with(`"ambient_enabled":true`)
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("CHECK without a record: %+v", e)
	}
	b, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Remove(ns); err != nil {
		t.Fatal(err)
	}
	if e := w.call("CHECK", c); e == nil || e.Code != plugin.CodeDrift {
		t.Errorf("CHECK without rules: %+v", e)
	}
}

// Without the agent, and for each refusal of it, the pod does not start, and the error says why.
func TestPodInAmbientModeFailsClosed(t *testing.T) {
	for _, test := range []struct {
		kind source.Kind
		code uint
	}{
		{"", types.ErrTryAgainLater},
		{source.Unavailable, types.ErrTryAgainLater},
		{agent.KindZtunnel, types.ErrTryAgainLater},
		{agent.KindParameters, plugin.CodeParameters},
		{agent.KindRules, plugin.CodeApply},
		{agent.KindHost, plugin.CodeApply},
	} {
		t.Run(string(test.kind), func(t *testing.T) {
			w, ns, c := newAmbientWorld(t)
			want := "it is not running"
			if w.agent.enrol = nil; test.kind != "" {
				want = "because of " + string(test.kind)
				w.agent.enrol = func(source.Ref, []netip.Addr, int) (*agent.Enrolment, error) {
					return nil, source.WithKind(test.kind, errors.New(want))
				}
			}
			e := w.call("ADD", c)
			if e == nil || e.Code != test.code || !strings.Contains(e.Details, want) ||
				!strings.Contains(e.Msg, "is in ambient mode and cannot be enrolled") {
				t.Errorf("%+v", e)
			}
			c.wantNoRecord(t)
			holdsNothing(t, ns)
			if a := w.agent.last(t); a.Decision != "ambient" || a.Result != "error" {
				t.Errorf("report: %+v", a)
			}
		})
	}
}

// The label of the namespace decides too. If the plugin has no ambient mode, nothing has changed.
func TestNamespaceInAmbientMode(t *testing.T) {
	w, _, c := newAmbientWorld(t)
	w.source.pod.Metadata.Labels = nil
	w.source.namespace = &decide.Namespace{Metadata: decide.Metadata{
		Name: "shop", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}}
	w.add(t, c)
	if r := c.record(t); r.Outcome != "ambient" {
		t.Errorf("record: %+v", r)
	}
	w.source.asked = nil
	c.stdin = c.with()
	w.add(t, c)
	if r := c.record(t); r.Outcome != "skip" || strings.Contains(fmt.Sprint(w.source.asked), "namespace") {
		t.Errorf("without ambient mode: %+v, asked %v", r, w.source.asked)
	}
}

// A repeated ADD of a pod that has left ambient mode removes the rules, and one of a pod with a sidecar
// replaces them.
func TestRepeatedADDOfAPodThatLeavesAmbientMode(t *testing.T) {
	w, ns, c := newAmbientWorld(t)
	w.add(t, c)
	holds(t, ns)
	w.source.pod = readPod(t, "sidecar")
	w.add(t, c)
	if r := c.record(t); r.Redirect == nil || r.Ambient != nil {
		t.Errorf("record: %+v", r)
	}
	if e := w.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
	w, ns, c = newAmbientWorld(t)
	w.add(t, c)
	w.source.pod.Metadata.Labels = nil
	w.source.namespace = &decide.Namespace{}
	w.add(t, c)
	holdsNothing(t, ns)
}
