package compat_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// backends contains the names of both backends, for tests that run with each of them.
var backends = []compat.BackendName{compat.BackendNFT, compat.BackendLegacy}

// chosen returns the backend with the name.
func chosen(t testing.TB, backendName compat.BackendName) compat.Backend {
	t.Helper()
	b, err := compat.Choose(backendName)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sidecar returns the parameters of a typical pod with a sidecar, with changes.
func sidecar(change ...func(*rules.Redirect)) rules.Redirect {
	r := rules.DefaultRedirect()
	r.InboundPorts.All = true
	r.InboundExcludePorts = rules.Singles[uint16](15090, 15021, 15020)
	r.OutboundCIDRs.All = true
	for _, c := range change {
		c(&r)
	}
	return r
}

func tproxy(r *rules.Redirect)      { r.Mode = rules.ModeTProxy }
func dual(r *rules.Redirect)        { r.IPv6 = true }
func allDNS(r *rules.Redirect)      { r.DNS = rules.DNS{Capture: true, All: true} }
func dropInvalid(r *rules.Redirect) { r.DropInvalid = true }

func exclusions(r *rules.Redirect) {
	r.OutboundExcludeCIDRs = []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/64"),
	}
	r.OutboundExcludePorts = rules.Singles[uint16](5432, 9000)
	r.ExcludeInterfaces = []rules.InterfaceName{{Name: "eth1"}, {Name: "tap", Prefix: true}}
	r.RerouteInterfaces = []rules.InterfaceName{{Name: "vnet0"}}
	r.OwnerGroupsExclude = rules.Singles[uint32](7)
}

func compiled(t testing.TB, change ...func(*rules.Redirect)) rules.Ruleset {
	t.Helper()
	r := sidecar(change...)
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return rules.MustCompile(r)
}

// applyAndCheck applies the ruleset, and verifies the outcome and that the namespace has exactly
// these rules.
func applyAndCheck(
	t testing.TB, b compat.Backend, ns *netns.NS, rs rules.Ruleset, want nft.Outcome,
) compat.Result {
	t.Helper()
	result, err := b.Apply(ns, rs, compat.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome != want {
		t.Fatalf("%s: outcome %s, want %s", b.Name(), result.Outcome, want)
	}
	wantInSync(t, b, ns, rs)
	return result
}

// wantInSync verifies that the backend finds no differences from the ruleset.
func wantInSync(t testing.TB, b compat.Backend, ns *netns.NS, rs rules.Ruleset) {
	t.Helper()
	found, err := b.Check(ns, rs, compat.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Differences) > 0 {
		t.Fatalf("%s: Check finds differences, want none:\n%s", found.Backend, lines(found.Differences))
	}
}

func lines(diffs []rules.Difference) string {
	var text []string
	for _, d := range diffs {
		text = append(text, d.String())
	}
	return strings.Join(text, "\n")
}

// wantNoRules verifies that no backend has rules of Sluice, and that no routes of Sluice exist.
func wantNoRules(t testing.TB, ns *netns.NS) {
	t.Helper()
	installed, err := compat.InstalledBackends(ns)
	if err != nil || len(installed) > 0 {
		t.Fatalf("installed backends %v, error %v, want none", installed, err)
	}
	routing, err := route.Read(ns)
	if err != nil || !routing.IsZero() {
		t.Fatalf("remaining routing: %+v, error %v, want none", routing, err)
	}
}

// dumpForeignRules returns the rules in iptables-legacy with counters, except Sluice's chains and
// the rules that refer to them.
func dumpForeignRules(t testing.TB, ns *netns.NS) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(istiotest.Dump(t, ns, istiotest.Legacy)) {
		if !strings.Contains(line, compat.ChainPrefix) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func TestBackendsReadBackAppliedRules(t *testing.T) {
	for _, backendName := range backends {
		for _, tc := range []struct {
			name   string
			change []func(*rules.Redirect)
		}{
			{"redirect", nil},
			{"tproxy, both families, DNS", []func(*rules.Redirect){tproxy, dual, allDNS}},
			{
				"exclusions of every kind",
				[]func(*rules.Redirect){dual, exclusions, allDNS, dropInvalid},
			},
			{
				"exclusions of every kind, tproxy",
				[]func(*rules.Redirect){tproxy, dual, exclusions, allDNS, dropInvalid},
			},
			{"established connections are kept, tproxy", []func(*rules.Redirect){tproxy, func(r *rules.Redirect) {
				r.KeepEstablished = true
			}}},
		} {
			t.Run(string(backendName)+"/"+tc.name, func(t *testing.T) {
				ns := netnstest.New(t)
				b, rs := chosen(t, backendName), compiled(t, tc.change...)
				if r := applyAndCheck(t, b, ns, rs, nft.Created); r.Backend != backendName || r.Rules == 0 ||
					r.Moved {
					t.Errorf("result %+v, want rules in %s that were not moved", r, backendName)
				}
				if r := applyAndCheck(t, b, ns, rs, nft.Unchanged); r.Bytes+r.Routes > 0 {
					t.Errorf("unchanged rules, but result %+v, want no bytes and no routes", r)
				}
				found, err := b.Read(ns)
				if err != nil || len(found.Tables) == 0 ||
					!cmp.Equal(found.Routing.Policies, rs.Routing.Policies) {
					t.Errorf("Read returns %v, error %v; want tables and the policy routes %v", found, err,
						rs.Routing.Policies)
				}
				if removed, err := b.Remove(ns); err != nil || !removed {
					t.Fatalf("Remove: %t, error %v; want true", removed, err)
				}
				wantNoRules(t, ns)
				if removed, err := b.Remove(ns); err != nil || removed {
					t.Fatalf("second Remove: %t, error %v; want false", removed, err)
				}
			})
		}
	}
}

// Comments are not compared, so that an updated agent finds no drift in rules that an earlier
// version wrote.
func TestCommentsAreNotCompared(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.New(t)
			earlier, rs := compiled(t, tproxy, allDNS, exclusions),
				compiled(t, tproxy, allDNS, exclusions)
			for i := range earlier.Tables[0].Chains {
				for j := range earlier.Tables[0].Chains[i].Rules {
					earlier.Tables[0].Chains[i].Rules[j].Comment = "another comment"
				}
			}
			applyAndCheck(t, chosen(t, backendName), ns, earlier, nft.Created)
			wantInSync(t, chosen(t, backendName), ns, rs)
			applyAndCheck(t, chosen(t, backendName), ns, rs, nft.Unchanged)
		})
	}
}

func TestLegacyWithoutIPv6CreatesNoIPv6Tables(t *testing.T) {
	ns := netnstest.New(t)
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, compiled(t, tproxy, allDNS), nft.Created)
	tables, err := xtables.Tables(ns)
	want := []xtables.ID{
		{Family: rules.IPv4, Name: "mangle"},
		{Family: rules.IPv4, Name: "nat"},
		{Family: rules.IPv4, Name: "raw"},
	}
	if err != nil || !slices.Equal(tables, want) {
		t.Errorf("tables %v, error %v, want %v", tables, err, want)
	}
}

// Tables that the rules do not need are not created, because packets would traverse them.
func TestLegacyCreatesOnlyTheTablesThatItNeeds(t *testing.T) {
	ns := netnstest.New(t)
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, compiled(t), nft.Created)
	tables, err := xtables.Tables(ns)
	if err != nil || !slices.Equal(tables, []xtables.ID{{Family: rules.IPv4, Name: "nat"}}) {
		t.Errorf("tables %v, error %v, want only ip nat", tables, err)
	}
}

func TestLegacyKeepsForeignRulesAndCounters(t *testing.T) {
	ns := istiotest.Load(t, istiotest.Legacy, istiotest.Case{})
	before := istiotest.Dump(t, ns, istiotest.Legacy)
	b := chosen(t, compat.BackendLegacy)
	applyAndCheck(t, b, ns, compiled(t, tproxy, dual, allDNS), nft.Created)
	for _, change := range []func(*rules.Redirect){exclusions, dropInvalid, tproxy} {
		applyAndCheck(t, b, ns, compiled(t, dual, change), nft.Replaced)
		if diff := cmp.Diff(before, dumpForeignRules(t, ns)); diff != "" {
			t.Fatalf("foreign rules: -before +after:\n%s", diff)
		}
	}
	if _, err := b.Remove(ns); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
		t.Errorf("rules after Remove: -before +after:\n%s", diff)
	}
}

func TestLegacyJumpsPrecedeForeignRules(t *testing.T) {
	ns := istiotest.Load(t, istiotest.Legacy, istiotest.Case{})
	applyAndCheck(t, chosen(t, compat.BackendLegacy), ns, compiled(t), nft.Created)
	for line := range strings.Lines(istiotest.Run(t, ns, "", "iptables-legacy", "-t", "nat", "-S",
		"OUTPUT")) {
		if strings.HasPrefix(line, "-A") {
			if line != "-A OUTPUT -j SLUICE_OUTPUT\n" {
				t.Errorf("the first rule is %s, want the jump to SLUICE_OUTPUT", line)
			}
			return
		}
	}
	t.Error("no rule in OUTPUT, want the jump to SLUICE_OUTPUT")
}

// Changes to Sluice's rules, and foreign rules before its jumps, are detected and repaired.
func TestLegacyFindsAndRepairsDrift(t *testing.T) {
	for _, tc := range []struct{ name, change string }{
		{"an added rule", "-t nat -I SLUICE_OUTPUT -j ACCEPT"},
		{"a deleted rule", "-t nat -D SLUICE_OUTPUT 1"},
		{"a replaced rule", "-t nat -R SLUICE_OUTPUT 1 -o eth9 -j RETURN"},
		{
			"an added unknown rule",
			"-t nat -A SLUICE_OUTPUT -m statistic --mode random --probability 0.5 -j RETURN",
		},
		{"a deleted jump", "-t nat -D OUTPUT -j SLUICE_OUTPUT"},
		{"a second jump", "-t nat -A OUTPUT -j SLUICE_OUTPUT"},
		{"a jump for some packets only", "-t nat -R OUTPUT 1 -p tcp -j SLUICE_OUTPUT"},
		{"a jump from a foreign chain", "-t nat -N OTHER; -t nat -A OTHER -j SLUICE_OUTPUT"},
		{"an added chain", "-t nat -N SLUICE_OTHER"},
		{
			"a foreign rule before Sluice's jump, which may make packets bypass the proxy",
			"-t nat -I OUTPUT -j ACCEPT",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			b, rs := chosen(t, compat.BackendLegacy), compiled(t, tproxy)
			applyAndCheck(t, b, ns, rs, nft.Created)
			for command := range strings.SplitSeq(tc.change, ";") {
				istiotest.Run(t, ns, "", "iptables-legacy", strings.Fields(command)...)
			}
			found, err := b.Check(ns, rs, compat.Snapshot{})
			if err != nil || len(found.Differences) == 0 {
				t.Errorf("differences %v, error %v; want differences", found.Differences, err)
			}
			if plan, err := b.Plan(ns, rs, compat.Snapshot{}); err != nil ||
				plan.Outcome != nft.Replaced {
				t.Errorf("plan %+v, error %v; want outcome replaced", plan, err)
			}
			applyAndCheck(t, b, ns, rs, nft.Replaced)
		})
	}
}

// Foreign rules that follow Sluice's jumps, foreign chains and chain policies do not count as
// drift.
func TestLegacyDoesNotCompareForeignRules(t *testing.T) {
	ns := netnstest.New(t)
	b, rs := chosen(t, compat.BackendLegacy), compiled(t, tproxy)
	applyAndCheck(t, b, ns, rs, nft.Created)
	for _, change := range []string{
		"-t nat -A OUTPUT -j ACCEPT", "-t mangle -P OUTPUT DROP", "-t nat -N OTHER",
		"-t filter -A INPUT -j ACCEPT", "-t mangle -A PREROUTING -i eth9 -j ACCEPT",
	} {
		istiotest.Run(t, ns, "", "iptables-legacy", strings.Fields(change)...)
	}
	wantInSync(t, b, ns, rs)
	applyAndCheck(t, b, ns, rs, nft.Unchanged)
}
