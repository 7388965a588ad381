package istio_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

const istioAmbient istio.Program = "istio-ambient"

// Numbers of generated configurations, in the short and the long form.
const fewAmbient, manyAmbient = 60, 500

// TestAmbientRulesMatchIstios checks that Sluice's ambient rules treat every packet like the rules
// that istio-cni installs in a pod. Only the rules of istio-cni's nftables backend may differ, and
// only by the deviation ambient-ipv6.
func TestAmbientRulesMatchIstios(t *testing.T) {
	p := program(t, istioAmbient)
	seed, n := randomSeed(t), fewAmbient
	if isLong() {
		n = manyAmbient
	}
	var equal, deviating, rejected atomic.Int64
	t.Run("configurations", func(t *testing.T) {
		for _, c := range istio.RandomAmbient(seed, n) {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				a, err := c.Ambient()
				if err != nil {
					t.Fatal(err)
				}
				for _, nftables := range []bool{false, true} {
					ns := newPod(t, istio.DualPod)
					result, err := p.RunAmbient(ns, c, nftables)
					switch {
					case err != nil:
						t.Fatal(err)
					case nftables && c.HasInterfacePattern() && result.Status != 0:
						rejected.Add(1)
						continue
					case result.Status != 0 || nftables && c.HasInterfacePattern():
						t.Fatalf("nftables %t: failed: %t, want %t (status %d): %s", nftables, result.Status != 0,
							nftables && c.HasInterfacePattern(), result.Status,
							lastLines(result.Errors+result.Output, 5))
					}
					if compareAmbient(t, ns, a, nftables) {
						equal.Add(1)
					} else {
						deviating.Add(1)
					}
				}
			})
		}
	})
	fmt.Printf("istio-cni in ambient mode, %d configurations of both backends (SLUICE_SEED=%d): "+
		"%d rulesets equal, %d equal except for ambient-ipv6, %d with an interface pattern rejected by "+
		"its nftables backend\n",
		n, seed, equal.Load(), deviating.Load(), rejected.Load())
}

// compareAmbient reports whether Sluice's rules and the namespace's rules are equivalent. It fails
// the test if they differ by anything other than the deviation ambient-ipv6.
func compareAmbient(t *testing.T, ns *netns.NS, a rules.Ambient, nftables bool) bool {
	t.Helper()
	sluiceRules, err := rules.CompileAmbient(a)
	if err != nil {
		t.Fatal(err)
	}
	istioRules := readLive(t, ns)
	istioRules.Routing = readRouting(t, ns)
	r := diff.Decide(diff.Side{Ruleset: sluiceRules, RoutingKnown: true, Ambient: &a},
		diff.Side{Ruleset: istioRules, RoutingKnown: true}, diff.Options{})
	if r.StrictVerdict() == diff.Equivalent && len(r.Routing) == 0 {
		return true
	}
	if !nftables || a.IPv6 || r.Verdict() != diff.Equivalent {
		t.Errorf("nftables %t: verdict %s, want equal rules, or for nftables without IPv6 only the "+
			"deviation %s\n%v\n%v\n%v", nftables, r.Verdict(), rules.AmbientIPv6, r.Classes,
			r.Undecided, r.Routing)
	}
	for _, c := range r.Classes {
		if !slices.Equal(c.Deviations, []rules.DeviationID{rules.AmbientIPv6}) {
			t.Errorf("packets %v differ by the deviations %v, want only %s", c.Packets, c.Deviations,
				rules.AmbientIPv6)
		}
	}
	return false
}
