package injection_test

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/injection"
	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// compare compares the plugin's rules for its pod with those of istio-init in the other one. No
// packet may be treated differently except by the named differences, and each named difference must
// occur.
func compare(t *testing.T, tools injection.Tools, s subject, pod, initialised *corev1.Pod) {
	t.Helper()
	ours := parameters(t, s, pod)
	theirs := runInit(t, tools, s, initialised)
	others := s.others
	if others == nil {
		others = usual
	}
	r := decideWithout(ours, theirs, others)
	if r.Verdict(false) != diff.Equivalent {
		t.Errorf("%s\n%s", r.Verdict(false), describe(r))
	}
	if named, want := deviationsOf(r),
		slices.Sorted(slices.Values(s.deviations)); !slices.Equal(named, want) {
		t.Errorf("deviations %v, want %v", named, want)
	}
	for i, o := range others {
		if r := decideWithout(ours, theirs,
			slices.Delete(slices.Clone(others), i, i+1)); r.Verdict(false) != diff.Different {
			t.Errorf("there is no such difference: %s", o.name)
		}
	}
}

// parameters returns the parameters that the plugin derives from its pod. The command must derive
// the same.
func parameters(t *testing.T, s subject, injected *corev1.Pod) rules.Redirect {
	t.Helper()
	pod := readAsPlugin(t, injected)
	if d := decisionOn(pod); d.Outcome != decide.Redirect {
		t.Fatal(d)
	}
	ours, notes, err := decide.Parameters(pod, pod.Addresses(), &decide.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range notes {
		if n.Kind != decide.IPv6Uncaptured || s.pod != istio.DualPod || ours.IPv6 {
			t.Errorf("unexpected note: %s", n)
		}
	}
	if want := rules.Singles(cmp.Or(s.user, rules.DefaultProxyID)); !slices.Equal(ours.ProxyUIDs,
		want) {
		t.Errorf("the proxy's user is %v, want %v", ours.ProxyUIDs, want)
	}
	cmd := exec.Command(filepath.Join(bin, "rules"), "explain", "--pod", "-")
	cmd.Stdin = strings.NewReader(text(t, injected))
	out, err := cmd.CombinedOutput()
	if said := string(out); err != nil || !strings.Contains(said, "redirect (mesh-pod)") ||
		!strings.Contains(said, rules.MustCompile(ours).String()) {
		t.Errorf("rules explain --pod: %v: %s\nwant the ruleset\n%s", err, said,
			rules.MustCompile(ours))
	}
	return ours
}

// decideWithout compares our rules, with some differences undone, with their rules.
func decideWithout(ours rules.Redirect, theirs rules.Ruleset, undone []difference) diff.Result {
	for _, d := range undone {
		d.undo(&ours)
	}
	return diff.Decide(diff.Side{
		Ruleset: rules.MustCompile(ours), RoutingKnown: true, Redirect: &ours,
	},
		diff.Side{Ruleset: theirs, RoutingKnown: true}, diff.Options{})
}

// runInit runs the pod's istio-init in a pod's network namespace and returns the resulting rules.
func runInit(t *testing.T, tools injection.Tools, s subject, pod *corev1.Pod) rules.Ruleset {
	t.Helper()
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == "istio-init"
	})
	if i < 0 {
		t.Fatalf("no istio-init in\n%s", text(t, pod))
	}
	init := pod.Spec.InitContainers[i]
	c := istio.Configuration{Args: init.Args, Pod: s.pod, ResolvConf: resolvConf}
	for _, v := range init.Env {
		c.Env = append(c.Env, v.Name+"="+v.Value)
	}
	ns, err := s.pod.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	result, err := istio.Program(tools.Agent).Run(ns, c, init.Args...)
	if err != nil || result.Status != 0 {
		t.Fatalf("istio-init %q: %v, status %d\n%s", init.Args, err, result.Status, result.Errors)
	}
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil || len(live.Ambiguous) > 0 {
		t.Fatalf("%v, ambiguous: %v", err, live.Ambiguous)
	}
	if live.Ruleset.Routing, err = istio.ReadRouting(ns); err != nil {
		t.Fatal(err)
	}
	return live.Ruleset
}

// deviationsOf returns the deviations that a comparison names.
func deviationsOf(r diff.Result) []rules.DeviationID {
	var ids []rules.DeviationID
	for _, c := range r.Classes {
		ids = append(ids, c.Deviations...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// describe formats a comparison for people.
func describe(r diff.Result) string {
	var b strings.Builder
	for _, c := range r.Classes {
		fmt.Fprintf(&b, "%v %v\n\t%s\n\tthe plugin: %s\n\tistio-init: %s\n",
			c.Deviations, c.Packets, c.Witness, c.Outcome.Left.Outcome, c.Outcome.Right.Outcome)
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "cannot decide: %q in %s, met by %s\n", u.Text, u.Step, u.Witness)
	}
	for _, d := range r.Routing {
		fmt.Fprintf(&b, "routing: %s\n", d)
	}
	return b.String()
}
