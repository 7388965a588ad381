package istio_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestPeers compares Sluice's rules with istio-iptables' rules, for each configuration of the
// matrix.
func TestPeers(t *testing.T) {
	program(t, istioIptables)
	configurations := configurations(t)
	native := newDifferenceCounter()
	progress := counter{total: len(configurations)}
	for _, c := range configurations {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			defer progress.step()
			switch {
			case c.Refused != nil:
				checkRefusal(t, c)
				return
			case c.NoRules:
				native.checkNoRules(t, c)
				return
			}
			s := newTestCase(t, c)
			s.checkCommand(t)
			legacy := s.checkIptables(t)
			s.checkTranslation(t)
			native.checkNative(t, s, legacy)
		})
	}
	t.Cleanup(native.print)
}

// checkRefusal checks which programs reject the configuration.
func checkRefusal(t *testing.T, c istio.Configuration) {
	t.Helper()
	_, istioResult := start(t, c, byLegacy)
	sluiceResult := showSluice(t, c)
	check := func(program string, r istio.Result, refuses bool) {
		if (r.Status != 0) != refuses {
			t.Errorf("%s\n%s: rejected: %t, want %t (%s); exit status %d\n%s", c, program,
				r.Status != 0, refuses, c.Refused.Reason, r.Status, lastLines(r.Output+r.Errors, 8))
		}
	}
	check("istio-iptables", istioResult, c.Refused.ByIstio)
	check("rules", sluiceResult, c.Refused.BySluice)
}

// checkCommand runs rules show with the arguments of the configuration in the same kind of pod, and
// compares the output with the compiled ruleset.
func (s testCase) checkCommand(t *testing.T) {
	t.Helper()
	for _, side := range []struct {
		flags []string
		want  rules.Ruleset
	}{{nil, s.sluiceRules}, {[]string{"--strict-istio"}, s.strict}} {
		r := showSluice(t, s.Configuration, side.flags...)
		if r.Status != 0 {
			t.Errorf("%s\nrules show %v rejects the configuration: %s", s, side.flags, r.Errors)
			return
		}
		if want := side.want.String(); r.Output != want {
			t.Errorf("%s\nrules show %v prints\n%s\nwant\n%s", s, side.flags, r.Output, want)
		}
	}
}

// checkLive compares the rules read from the kernel with the output of iptables-save.
func (s testCase) checkLive(t *testing.T, ns *netns.NS, saved rules.Ruleset) {
	t.Helper()
	live := readLive(t, ns)
	for _, d := range rules.Compare(rules.Ruleset{Tables: saved.Tables},
		rules.Ruleset{Tables: live.Tables}) {
		t.Errorf("%s\niptables-save and the kernel: %s", s, d)
	}
	r := diff.Decide(diff.Side{Ruleset: live, RoutingKnown: true},
		diff.Side{Ruleset: saved, RoutingKnown: true}, diff.Options{})
	if r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nthe kernel and iptables-save: %s, want equivalent\n%s", s, r.StrictVerdict(),
			describe(r, "kernel", "iptables-save"))
	}
}

// showSluice runs rules show with the arguments of the configuration.
func showSluice(t *testing.T, c istio.Configuration, extra ...string) istio.Result {
	t.Helper()
	args := slices.Concat([]string{"show"}, c.Args, []string{"--netns=/proc/self/ns/net"}, extra)
	r, err := program(t, sluiceCommand).Run(newPod(t, c.Pod), c, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkIptables runs istio-iptables with legacy iptables, compares its rules with Sluice's, and
// returns them.
func (s testCase) checkIptables(t *testing.T) rules.Ruleset {
	t.Helper()
	ns, result := start(t, s.Configuration, byLegacy)
	if result.Status != 0 {
		t.Fatalf("%s\nistio-iptables: exit status %d, want 0\n%s", s, result.Status,
			lastLines(result.Output+result.Errors, 8))
	}
	istioRules := readSaved(t, ns)
	s.checkLive(t, ns, istioRules)
	istioSide := diff.Side{Ruleset: istioRules, RoutingKnown: true}

	if r := diff.Decide(s.strictSide(), istioSide,
		diff.Options{}); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nstrict rules and istio-iptables: %s, want equivalent\n%s", s, r.StrictVerdict(),
			describe(r, "Sluice", "istio-iptables"))
	}
	r := diff.Decide(s.sluiceSide(), istioSide, diff.Options{})
	if r.Verdict() != diff.Equivalent {
		t.Errorf("%s\ndefault rules and istio-iptables: %s, want equivalent\n%s", s, r.Verdict(),
			describe(r, "Sluice", "istio-iptables"))
	}
	if want, got := deviationsExpected(s.redirect), deviationsOf(r); !maps.Equal(want, got) {
		t.Errorf("%s\ndeviations %v, want %v\n%s", s, slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)),
			describe(r, "Sluice", "istio-iptables"))
	}
	s.checkLog(t, result, istioSide)
	s.checkApplied(t, istioSide)
	return istioRules
}
