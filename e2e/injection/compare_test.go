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
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// compare compares the plugin's rules for pod with istio-init's rules for initialized. They must
// differ exactly by s.deviations and s.others.
func compare(t *testing.T, tools injection.Tools, s podCase, pod, initialized *corev1.Pod) {
	t.Helper()
	sluiceRules := parameters(t, s, pod)
	istioRules := runInit(t, tools, s, initialized)
	others := s.others
	if others == nil {
		others = usualDifferences
	}
	r := decideWithout(sluiceRules, istioRules, others)
	if r.Verdict() != diff.Equivalent {
		t.Errorf("plugin and istio-init: %s, want equivalent\n%s", r.Verdict(), describe(r))
	}
	if named, want := deviationsOf(r),
		slices.Sorted(slices.Values(s.deviations)); !slices.Equal(named, want) {
		t.Errorf("deviations %v, want %v", named, want)
	}
	for i, o := range others {
		if r := decideWithout(sluiceRules, istioRules,
			slices.Delete(slices.Clone(others), i, i+1)); r.Verdict() != diff.Different {
			t.Errorf("expected difference does not occur: %s", o.name)
		}
	}
}

// parameters returns the parameters that the plugin derives from the pod, and checks that rules
// explain prints the same rules.
func parameters(t *testing.T, s podCase, injected *corev1.Pod) rules.Redirect {
	t.Helper()
	pod := readAsPlugin(t, injected)
	if d := decisionOn(pod); d.Outcome != decide.Redirect {
		t.Fatalf("decision %s, want redirect", d)
	}
	sluiceRules, notes, err := decide.Parameters(pod, pod.Addresses(), &decide.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	checkNotes(t, s, notes, sluiceRules.IPv6)
	if want := rules.Singles(cmp.Or(s.user, rules.DefaultProxyID)); !slices.Equal(sluiceRules.ProxyUIDs,
		want) {
		t.Errorf("UID of the proxy %v, want %v", sluiceRules.ProxyUIDs, want)
	}
	cmd := exec.Command(filepath.Join(bin, "rules"), "explain", "--pod", "-")
	cmd.Stdin = strings.NewReader(text(t, injected))
	out, err := cmd.CombinedOutput()
	if output := string(out); err != nil || !strings.Contains(output, "redirect (mesh-pod)") ||
		!strings.Contains(output, rules.MustCompile(sluiceRules).String()) {
		t.Errorf("rules explain --pod: error %v, output:\n%s\nwant redirect (mesh-pod) and the ruleset\n%s",
			err, output, rules.MustCompile(sluiceRules))
	}
	return sluiceRules
}

// checkNotes checks that the notes name exactly s.variables and, in a dual-stack pod whose IPv6 is
// not captured, its IPv6 address.
func checkNotes(t *testing.T, s podCase, notes []decide.Note, capturesIPv6 bool) {
	t.Helper()
	want := map[decide.NoteKind]string{}
	if s.pod == istio.DualPod && !capturesIPv6 {
		want[decide.IPv6Uncaptured] = testbed.PodIP6.String()
	}
	if len(s.variables) > 0 {
		want[decide.VariableOfIstioInit] = fmt.Sprintf(`: "%s"`, strings.Join(s.variables, `", "`))
	}
	for _, n := range notes {
		contained, ok := want[n.Kind]
		if !ok || !strings.Contains(n.Message, contained) {
			t.Errorf("note %s, want kinds and parts of messages %q", n, want)
		}
		delete(want, n.Kind)
	}
	for kind, contained := range want {
		t.Errorf("no note %s with %q", kind, contained)
	}
}

// decideWithout compares the rulesets after changing Sluice's parameters to istio-init's, for the
// given differences.
func decideWithout(sluiceRules rules.Redirect, istioRules rules.Ruleset, removed []difference) diff.Result {
	for _, d := range removed {
		d.remove(&sluiceRules)
	}
	return diff.Decide(diff.Side{
		Ruleset: rules.MustCompile(sluiceRules), RoutingKnown: true, Redirect: &sluiceRules,
	},
		diff.Side{Ruleset: istioRules, RoutingKnown: true}, diff.Options{})
}

// runInit runs the pod's istio-init in a new network namespace, and returns the resulting rules.
func runInit(t *testing.T, tools injection.Tools, s podCase, pod *corev1.Pod) rules.Ruleset {
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
		t.Fatalf("istio-init %q: error %v, status %d, want status 0\n%s", init.Args, err, result.Status,
			result.Errors)
	}
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil || len(live.Ambiguous) > 0 {
		t.Fatalf("read the rules: error %v, ambiguous rules %v", err, live.Ambiguous)
	}
	if live.Ruleset.Routing, err = istio.ReadRouting(ns); err != nil {
		t.Fatal(err)
	}
	return live.Ruleset
}

// deviationsOf returns the ids of the deviations in a comparison.
func deviationsOf(r diff.Result) []rules.DeviationID {
	var ids []rules.DeviationID
	for _, c := range r.Classes {
		ids = append(ids, c.Deviations...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// describe formats a comparison.
func describe(r diff.Result) string {
	var b strings.Builder
	for _, c := range r.Classes {
		fmt.Fprintf(&b, "%v %v\n\t%s\n\tthe plugin: %s\n\tistio-init: %s\n",
			c.Deviations, c.Packets, c.Witness, c.Outcome.Left.Outcome, c.Outcome.Right.Outcome)
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "undecided: %q in %s, reached by %s\n", u.Text, u.Step, u.Witness)
	}
	for _, d := range r.Routing {
		fmt.Fprintf(&b, "routing: %s\n", d)
	}
	return b.String()
}
