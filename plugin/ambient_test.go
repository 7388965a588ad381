package plugin_test

import (
	"cmp"
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

// newAmbientTestEnv returns an environment with a pod in ambient mode, and an agent that installs
// its rules.
func newAmbientTestEnv(t testing.TB) (*testEnv, *netns.NS, sandboxCall) {
	t.Helper()
	env, ns := newTestEnv(t, "not-injected"), netnstest.New(t)
	env.source.pod.Metadata.Labels = map[string]string{"istio.io/dataplane-mode": "ambient"}
	c := newCall(t, ns)
	c.stdin = c.configuration(`"ambient_enabled":true`)
	env.agent.enroll = func(
		ref source.Ref, addresses []netip.Addr, fd int,
	) (*agent.Enrollment, error) {
		if ref.UID != podUID || !slices.Equal(addresses, []netip.Addr{netip.MustParseAddr("10.244.1.5")}) {
			t.Errorf("request for %v with UID %s and addresses %v, want UID %s and 10.244.1.5", ref,
				ref.UID, addresses, podUID)
		}
		return installRules(fd)
	}
	return env, ns, c
}

// installRules installs the rules of ambient mode in the namespace with the descriptor fd, as the
// agent does.
func installRules(fd int) (*agent.Enrollment, error) {
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
	return &agent.Enrollment{
		Ambient: a, Backend: "nft", Outcome: string(applied.Outcome), Rules: applied.Rules,
		Notes: []string{"annotation-ignored: x"},
	}, err
}

func TestPodInAmbientModeIsEnrolledByTheAgent(t *testing.T) {
	env, ns, c := newAmbientTestEnv(t)
	if got := env.add(t, c); got != c.prevResult {
		t.Errorf("result: %s, want the previous one", got)
	}
	r := c.record(t)
	if r.Outcome != "ambient" || r.Reason != "ambient-pod" || r.Ambient == nil || r.Redirect != nil ||
		r.Backend != compat.BackendNFT {
		t.Errorf("record: %+v, want ambient (ambient-pod) with parameters and the backend nft", r)
	}
	line := env.logLines(t)[0]
	if line["decision"] != "ambient" || line["backend"] != "nft" || line["outcome"] != "created" ||
		line["notes"] != "annotation-ignored: x" {
		t.Errorf("log: %v, want the decision ambient and what the agent returned", line)
	}
	if a := env.agent.last(t); a.Decision != "ambient" || a.Result != "success" || a.Backend != "nft" {
		t.Errorf("report: %+v, want ambient, success and nft", a)
	}
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
	// Without a record, CHECK decides as ADD does.
	c.runDir = t.TempDir()
	c.stdin = c.configuration(`"ambient_enabled":true`)
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("CHECK without a record: %+v", e)
	}
	b, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Remove(ns); err != nil {
		t.Fatal(err)
	}
	if e := env.call("CHECK", c); e == nil || e.Code != plugin.CodeDrift {
		t.Errorf("CHECK without rules: %+v, want code %d", e, plugin.CodeDrift)
	}
}

// TestPodInAmbientModeFailsClosed checks that without the agent, and for each of its errors, the
// pod does not start, and the error contains the cause.
func TestPodInAmbientModeFailsClosed(t *testing.T) {
	for _, test := range []struct {
		kind source.Kind // of the agent's error; empty if no agent listens
		code uint
	}{
		{"", types.ErrTryAgainLater},
		{source.Unavailable, types.ErrTryAgainLater},
		{agent.KindZtunnel, types.ErrTryAgainLater},
		{agent.KindParameters, plugin.CodeParameters},
		{agent.KindRules, plugin.CodeApply},
		{agent.KindHost, plugin.CodeApply},
	} {
		t.Run(cmp.Or(string(test.kind), "no agent"), func(t *testing.T) {
			env, ns, c := newAmbientTestEnv(t)
			want := "no agent listens"
			env.agent.enroll = nil
			if test.kind != "" {
				want = "because of " + string(test.kind)
				env.agent.enroll = func(source.Ref, []netip.Addr, int) (*agent.Enrollment, error) {
					return nil, source.WithKind(test.kind, errors.New(want))
				}
			}
			e := env.call("ADD", c)
			if e == nil || e.Code != test.code || !strings.Contains(e.Details, want) ||
				!strings.Contains(e.Msg, "is in ambient mode and cannot be enrolled") {
				t.Errorf("ADD: %+v, want code %d and %q", e, test.code, want)
			}
			c.checkNoRecord(t)
			checkNoRules(t, ns)
			if a := env.agent.last(t); a.Decision != "ambient" || a.Result != "error" {
				t.Errorf("report: %+v, want ambient and error", a)
			}
		})
	}
}

// TestLabelOfTheNamespaceEnablesAmbientMode checks that the label of the namespace puts a pod into
// ambient mode, but that the namespace is not requested if ambient mode is disabled.
func TestLabelOfTheNamespaceEnablesAmbientMode(t *testing.T) {
	env, _, c := newAmbientTestEnv(t)
	env.source.pod.Metadata.Labels = nil
	env.source.namespace = &decide.Namespace{Metadata: decide.Metadata{
		Name: "shop", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}}
	env.add(t, c)
	if r := c.record(t); r.Outcome != "ambient" {
		t.Errorf("record: %+v, want ambient", r)
	}
	env.source.requested = nil
	c.stdin = c.configuration()
	env.add(t, c)
	if r := c.record(t); r.Outcome != "skip" || strings.Contains(fmt.Sprint(env.source.requested), "namespace") {
		t.Errorf("ambient mode is disabled: record %+v, requests %v; want skip, and none for the namespace",
			r, env.source.requested)
	}
}

// TestRepeatedADDRemovesTheRulesOfAmbientMode checks a repeated ADD of a pod that has left ambient
// mode: with a sidecar, the pod gets the rules of a sidecar, and without one, no rules.
func TestRepeatedADDRemovesTheRulesOfAmbientMode(t *testing.T) {
	env, ns, c := newAmbientTestEnv(t)
	env.add(t, c)
	checkHasRules(t, ns)
	env.source.pod = readPod(t, "sidecar")
	env.add(t, c)
	if r := c.record(t); r.Redirect == nil || r.Ambient != nil {
		t.Errorf("record: %+v, want a redirection to the sidecar", r)
	}
	if e := env.call("CHECK", c); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
	env, ns, c = newAmbientTestEnv(t)
	env.add(t, c)
	env.source.pod.Metadata.Labels = nil
	env.source.namespace = &decide.Namespace{}
	env.add(t, c)
	checkNoRules(t, ns)
}
