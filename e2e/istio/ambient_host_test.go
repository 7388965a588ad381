package istio_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// Numbers of generated configurations of a node, in the short and the long form.
const fewAmbientHosts, manyAmbientHosts = 30, 500

// Sluice's rules of a node treat every packet like the rules that istio-cni's code programs on the
// node, except for one deviation from each backend of istio-cni. Without the deviation, there is no
// difference.
func TestAmbientHostRulesMatchIstios(t *testing.T) {
	p := program(t, istioAmbient)
	seed, n := randomSeed(t), fewAmbientHosts
	if isLong() {
		n = manyAmbientHosts
	}
	var equal, byUser, byHost, failed atomic.Int64
	t.Run("configurations", func(t *testing.T) {
		for i, c := range istio.RandomAmbientHosts(seed, n) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for _, nftables := range []bool{false, true} {
					ns := netnstest.New(t)
					result, err := p.RunAmbientHost(ns, c, nftables)
					if err != nil {
						t.Fatal(err)
					}
					fails := c.FailsWithoutIPv6(nftables)
					if (result.Status != 0) != fails {
						t.Fatalf("%s\nnftables %t: failed: %t, want %t (status %d): %s", c, nftables,
							result.Status != 0, fails, result.Status, lastLines(result.Errors+result.Output, 5))
					}
					if fails {
						failed.Add(1)
					}
					switch isDifferent := compareAmbientHost(t, ns, c, nftables); {
					case !isDifferent:
						equal.Add(1)
					case nftables:
						byUser.Add(1)
					default:
						byHost.Add(1)
					}
				}
			})
		}
	})
	fmt.Printf("istio-cni in ambient mode on a node, %d configurations of both backends "+
		"(SLUICE_SEED=%d): %d rulesets equal because there are no pods, %d equal except for "+
		"probes-by-user, %d equal except for probes-by-host; %d runs with errors about IPv6 addresses "+
		"without IPv6\n", n, seed, equal.Load(), byUser.Load(), byHost.Load(), failed.Load())
}

// compareAmbientHost compares the namespace's rules with Sluice's rules. It reports whether they
// differ by the deviation from istio-cni's backend. It fails the test for any other difference, and
// if there is no difference although the rules apply to pods in the mesh.
func compareAmbientHost(
	t *testing.T, ns *netns.NS, c istio.AmbientHostConfiguration, nftables bool,
) bool {
	t.Helper()
	h := c.AmbientHost()
	deviation := rules.ProbesByUser
	var istioSide diff.Side
	if nftables {
		istioSide.Ruleset = readLive(t, ns)
	} else {
		deviation = rules.ProbesByHost
		istioSide.Ruleset = readSaved(t, ns)
		rulestest.ReplaceIPSets(t, istioSide.Ruleset, readIPSets(t, ns))
	}
	r := diff.Decide(diff.Side{
		Ruleset: compileHost(t, h), RoutingKnown: true, AmbientHost: &h,
	}, istioSide, diff.Options{})
	want := diff.Equivalent
	if slices.ContainsFunc(h.Pods, func(a netip.Addr) bool { return h.IPv6 || a.Unmap().Is4() }) {
		want = diff.Different
	}
	if r.Verdict() != diff.Equivalent || r.StrictVerdict() != want {
		t.Errorf("%s\nnftables %t: verdict %s, want %s; strict verdict %s, want %s\n%v\n%v", c, nftables,
			r.Verdict(), diff.Equivalent, r.StrictVerdict(), want, r.Classes, r.Undecided)
	}
	if want == diff.Different && !slices.ContainsFunc(r.Classes, func(c diff.Class) bool {
		return slices.Equal(c.Deviations, []rules.DeviationID{deviation})
	}) {
		t.Errorf("%s\nnftables %t: no class with the deviation %s: %v", c, nftables, deviation, r.Classes)
	}
	without := h
	without.Without = []rules.DeviationID{deviation}
	rs := compileHost(t, without)
	for i := range rs.Tables {
		// Tables of the iptables backend are compared as iptables tables; see
		// TestAmbientHostRulesTreatPacketsAsRecordedRulesDo.
		rs.Tables[i].XTables = !nftables
	}
	r = diff.Decide(diff.Side{Ruleset: rs, RoutingKnown: true}, istioSide, diff.Options{})
	if r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nnftables %t, without %s: strict verdict %s, want %s\n%v\n%v", c, nftables,
			deviation, r.StrictVerdict(), diff.Equivalent, r.Classes, r.Undecided)
	}
	return want == diff.Different
}

func compileHost(t *testing.T, h rules.AmbientHost) rules.Ruleset {
	t.Helper()
	rs, err := rules.CompileAmbientHost(h)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// readIPSets returns the members of all ipsets in the namespace.
func readIPSets(t *testing.T, ns *netns.NS) map[string][]netip.Addr {
	t.Helper()
	members := map[string][]netip.Addr{}
	err := ns.Do(func() error {
		sets, err := netlink.IpsetListAll()
		if err != nil {
			return err
		}
		for _, set := range sets {
			for _, entry := range set.Entries {
				a, ok := netip.AddrFromSlice(entry.IP)
				if !ok {
					return errors.New("ipset " + set.SetName + ": an entry without an address")
				}
				members[set.SetName] = append(members[set.SetName], a)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return members
}
