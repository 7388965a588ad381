package rules_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// Most of these tests compare Sluice's rules with Istio's: with recorded runs (istioCases), or with
// the rules that istioReference generates.

func side(rs rules.Ruleset) diff.Side { return diff.Side{Ruleset: rs} }

// withoutTimeLimit are options for decisions that may be slow, for example with the race detector.
var withoutTimeLimit = diff.Options{Budget: diff.Budget{Memory: diff.DefaultBudget.Memory}}

// describe returns the classes of a result, the reasons why it has undecided packets, and the
// exhausted limit.
func describe(r diff.Result) string {
	b := new(strings.Builder)
	for _, c := range r.Classes {
		fmt.Fprintf(b, "%v %v\n\t%s\n\tleft  %s %v\n\tright %s %v\n", c.Packets, c.Deviations,
			c.Witness,
			c.Outcome.Left.Outcome, c.Outcome.Left.Decided, c.Outcome.Right.Outcome,
			c.Outcome.Right.Decided)
	}
	fmt.Fprintf(b, "undecided: %v, exhausted limit: %q", r.Undecided, r.Exhausted)
	return b.String()
}

func TestStrictRulesAreEquivalentToIstios(t *testing.T) {
	for _, c := range rulestest.Sample(istioCases(t), os.Getenv) {
		t.Run(c.name, func(t *testing.T) {
			result := diff.Decide(side(c.strict(t)), side(c.ruleset), withoutTimeLimit)
			_, isLeftover := leftovers[c.name]
			if equivalent := result.StrictVerdict() == diff.Equivalent; equivalent == isLeftover {
				t.Errorf("equivalent: %t, want %t\n%s", equivalent, !isLeftover, describe(result))
			}
		})
	}
}

func TestDefaultRulesDifferOnlyByDeviations(t *testing.T) {
	for _, c := range rulestest.Sample(istioCases(t), os.Getenv) {
		if leftovers[c.name] != "" || c.onlyCleansUp() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			left := side(compile(t, c.redirect))
			left.Redirect = &c.redirect
			result := diff.Decide(left, side(c.ruleset), withoutTimeLimit)
			if result.Verdict() != diff.Equivalent {
				t.Errorf("verdict %s, want %s except for deviations:\n%s", result.Verdict(),
					diff.Equivalent, describe(result))
			}
		})
	}
}

func TestRandomRulesDifferFromTheReferenceOnlyByDeviations(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		if !long() && rapid.IntRange(0, 4).Draw(t, "one of five") > 0 {
			return // a TPROXY decision with all deviations takes half a second
		}
		result := diff.Decide(sideOf(r), side(istioReference(r)), withoutTimeLimit)
		if result.Verdict() != diff.Equivalent {
			t.Fatalf("verdict %s, want %s except for deviations:\n%s", result.Verdict(),
				diff.Equivalent, describe(result))
		}
		r.StrictIstio()
		if result := diff.Decide(sideOf(r), side(istioReference(r)),
			withoutTimeLimit); result.StrictVerdict() != diff.Equivalent {
			t.Fatalf("without deviations: verdict %s, want %s:\n%s", result.StrictVerdict(),
				diff.Equivalent, describe(result))
		}
	})
}

// TestChangedRulesAreFound changes one compiled rule, and compares the classes of the decision with
// the outcomes of sampled packets. The two outcomes of a packet must differ if and only if a class
// contains the packet, unless classes are omitted. The two outcomes of each witness must differ.
func TestChangedRulesAreFound(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		left := rules.MustCompile(redirects.Draw(t, "redirect"))
		if !long() && rapid.IntRange(0, 4).Draw(t, "one of five") > 0 {
			return
		}
		right, changed := changeRule(t, left)
		if !changed {
			return
		}
		result := diff.Decide(diff.Side{Ruleset: left, RoutingKnown: true},
			diff.Side{Ruleset: right, RoutingKnown: true}, withoutTimeLimit)
		for _, c := range result.Classes {
			if l, r := diff.Explain(&left, c.Witness).Outcome,
				diff.Explain(&right, c.Witness).Outcome; l.Same(r) || !diff.Possible(c.Witness) {
				t.Fatalf("the witness %s must be possible and have two outcomes, got %s and %s",
					c.Witness, l, r)
			}
		}
		for _, p := range populations(left, right) {
			p.each(randomSample(), func(packet rules.Packet) bool {
				if !diff.Possible(packet) {
					return true
				}
				differs := !diff.Explain(&left, packet).Outcome.Same(diff.Explain(&right, packet).Outcome)
				in := slices.ContainsFunc(result.Classes, func(c diff.Class) bool {
					return c.Contains(packet)
				})
				if packet.State == rules.Untracked && (len(result.Classes) > 0 ||
					result.UntrackedUndecided) {
					return true // Decide compares such packets only if no others differ
				}
				if in && !differs || differs && !in && !result.More {
					t.Fatalf("%s: the outcomes differ: %t, but a class contains the packet: %t\n%s",
						packet, differs, in, right)
				}
				return true
			})
		}
	})
}

// changeRule removes a rule, exchanges it with the last rule, negates its matches of addresses and
// ports, or replaces its actions with accept. It reports whether there is a rule.
func changeRule(t *rapid.T, rs rules.Ruleset) (changed rules.Ruleset, done bool) {
	changed = rules.Ruleset{Tables: slices.Clone(rs.Tables), Routing: rs.Routing}
	table := &changed.Tables[0]
	if len(table.Chains) == 0 {
		return rs, false
	}
	table.Chains = slices.Clone(table.Chains)
	chain := &table.Chains[rapid.IntRange(0, len(table.Chains)-1).Draw(t, "chain")]
	chain.Rules = slices.Clone(chain.Rules)
	i := rapid.IntRange(0, len(chain.Rules)-1).Draw(t, "rule")
	rule := &chain.Rules[i]
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0:
		chain.Rules = slices.Delete(chain.Rules, i, i+1)
	case 1:
		rule.Actions = []rules.Action{rules.Accept}
	case 2:
		last := len(chain.Rules) - 1
		chain.Rules[i], chain.Rules[last] = chain.Rules[last], chain.Rules[i]
	case 3:
		rule.Matches = slices.Clone(rule.Matches)
		for j, m := range rule.Matches {
			switch m := m.(type) {
			case rules.MatchAddr:
				m.Not = !m.Not
				rule.Matches[j] = m
			case rules.MatchPort:
				m.Not = !m.Not
				rule.Matches[j] = m
			}
		}
	}
	return changed, true
}

func TestDeviationsOfEitherSideAreReported(t *testing.T) {
	r := typical(tproxyMode)
	strict := r
	strict.StrictIstio()
	mapped := typical(ipv6)
	mapped.OutboundExcludeCIDRs = must(rules.ParsePrefixes("::ffff:10.0.0.0/104"))
	strictMapped := mapped
	strictMapped.StrictIstio()
	rerouted := typical(tproxyMode)
	rerouted.RerouteInterfaces = interfaceNames("net1")
	strictRerouted := rerouted
	strictRerouted.StrictIstio()
	for _, tc := range []struct {
		name        string
		left, right rules.Redirect
		want        string
	}{
		{"the left side deviates", r, strict, "[tproxy-tunnel-port]"},
		{"the right side deviates", strict, r, "[tproxy-tunnel-port]"},
		{"both sides deviate", r, r, ""},
		{"another deviation", mapped, strictMapped, "[mapped-cidr]"},
		{
			"two deviations, with packets that one or both of them affect",
			rerouted, strictRerouted,
			"[tproxy-reroute] [tproxy-tunnel-port tproxy-reroute] [tproxy-tunnel-port]",
		},
	} {
		result := diff.Decide(sideOf(tc.left), sideOf(tc.right), diff.Options{MaxClasses: 1000})
		var got []string
		for _, c := range result.Classes {
			got = append(got, fmt.Sprint(c.Deviations))
		}
		slices.Sort(got)
		if names := strings.Join(slices.Compact(got), " "); names != tc.want {
			t.Errorf("%s: deviations %q, want %q\n%s", tc.name, names, tc.want, describe(result))
		}
		wantStrict := diff.Different
		if tc.want == "" {
			wantStrict = diff.Equivalent
		}
		if result.Verdict() != diff.Equivalent || result.StrictVerdict() != wantStrict {
			t.Errorf("%s: verdict %s, strictly %s; want %s, strictly %s", tc.name, result.Verdict(),
				result.StrictVerdict(), diff.Equivalent, wantStrict)
		}
	}
	withoutExclusions := strict
	withoutExclusions.InboundExcludePorts = nil
	result := diff.Decide(sideOf(r), sideOf(withoutExclusions), diff.Options{MaxClasses: 1000})
	for _, c := range result.Classes {
		isTunnel := c.Witness.Destination.Port() == rules.DefaultTunnelPort
		if isTunnel != (len(c.Deviations) == 1) {
			t.Errorf("%s has the deviations %v, want one only at the tunnel port", c.Witness,
				c.Deviations)
		}
	}
	if result.Verdict() == diff.Equivalent || len(result.Classes[0].Deviations) > 0 ||
		len(result.Classes[len(result.Classes)-1].Deviations) == 0 {
		t.Errorf("verdict %s; want another one than %s, and the classes without deviations first:\n%s",
			result.Verdict(), diff.Equivalent, describe(result))
	}
}

// sideOf returns the compiled ruleset with its parameters, which the decision needs to name
// deviations.
func sideOf(r rules.Redirect) diff.Side {
	return diff.Side{Ruleset: rules.MustCompile(r), RoutingKnown: true, Redirect: &r}
}

// separatePrefixes returns n prefixes that are not adjacent.
func separatePrefixes(n int, f rules.Family) []netip.Prefix {
	prefixes := make([]netip.Prefix, n)
	for i := range prefixes {
		prefixes[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26)
		if f == rules.IPv6 {
			prefixes[i] = netip.PrefixFrom(netip.AddrFrom16([16]byte{
				0xfd, 0, byte(i * 7), byte(i * 13), byte(i >> 8), byte(i), 1,
			}), 64)
		}
	}
	return prefixes
}

// BenchmarkDecide compares Sluice's rules with Istio's, which have one rule for each prefix.
func BenchmarkDecide(b *testing.B) {
	excluding := func(n int, f rules.Family) func(*rules.Redirect) {
		return func(r *rules.Redirect) {
			r.IPv6, r.OutboundExcludeCIDRs = f == rules.IPv6, separatePrefixes(n, f)
		}
	}
	including := func(r *rules.Redirect) {
		r.OutboundCIDRs = rules.PrefixSelection{Prefixes: separatePrefixes(10_000, rules.IPv4)}
	}
	for _, bench := range []struct {
		name     string
		redirect rules.Redirect
		differs  bool
	}{
		{"default", typical(), false},
		{"TPROXY and IPv6", typical(tproxyMode, ipv6), false},
		{"1000 prefixes", typical(excluding(1000, rules.IPv4)), false},
		{"10000 prefixes", typical(excluding(10_000, rules.IPv4)), false},
		{"10000 IPv6 prefixes", typical(excluding(10_000, rules.IPv6)), false},
		{"10000 included prefixes", typical(including), false},
		{"10000 prefixes, and another one", typical(excluding(10_000, rules.IPv4)), true},
	} {
		r := bench.redirect
		r.StrictIstio()
		left, right := sideOf(r), side(istioReference(r))
		if bench.differs {
			r.OutboundExcludeCIDRs = append(r.OutboundExcludeCIDRs,
				netip.MustParsePrefix("192.0.2.0/24"))
			left = sideOf(r)
		}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if result := diff.Decide(left, right,
					withoutTimeLimit); (result.StrictVerdict() == diff.Equivalent) == bench.differs {
					b.Fatalf("different: %t\n%s", !bench.differs, describe(result))
				}
			}
		})
	}
}
