package rules_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// cniDefaults sets the parameters that the plugin passes for a pod without annotations.
func cniDefaults(r *rules.Redirect) {
	r.InboundExcludePorts = ports("15020,15021,15090")
	r.OutboundExcludePorts = ports("15020")
	r.DNS = rules.DNS{Capture: true, All: true}
	r.IPv6 = true
}

// mostParameters sets most parameters that can be combined.
func mostParameters(r *rules.Redirect) {
	r.IPv6, r.DropInvalid = true, true
	r.OutboundCIDRs = prefixSelection("10.0.0.0/8,172.16.0.0/12,fd00:10:96::/112")
	r.OutboundExcludeCIDRs = prefixSelection("10.9.0.0/16,169.254.169.254/32,fd00:9::/64").Prefixes
	r.OutboundPorts, r.OutboundExcludePorts = ports("443"), ports("53,5432,6000-6063")
	r.OwnerGroups = rules.GroupSelection{IDs: ids("202,203")}
	r.ExcludeInterfaces, r.RerouteInterfaces = interfaceNames("net1,veth+"), interfaceNames("eth1")
	r.ProxyUIDs, r.ProxyGIDs = ids("1337,1338"), ids("1337")
	servers("10.96.0.10", "10.96.0.11", "fd00:10:96::a")(r)
}

func TestCompiledText(t *testing.T) {
	for name, r := range map[string]rules.Redirect{
		"nothing-captured":   rules.DefaultRedirect(),
		"istio-init-default": typical(),
		"cni-default":        typical(cniDefaults),
		"tproxy-dual":        typical(tproxyMode, ipv6),
		"tproxy-strict":      typical(tproxyMode, (*rules.Redirect).StrictIstio),
		"everything":         typical(mostParameters),
		"everything-tproxy":  typical(mostParameters, tproxyMode),
		"keep-established": typical(cniDefaults, func(r *rules.Redirect) {
			r.KeepEstablished = true
		}),
	} {
		t.Run(name, func(t *testing.T) {
			got := compile(t, r).String()
			path := filepath.Join("testdata", name+".nft")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(readText(t, path), got); diff != "" {
				t.Errorf("%s (-want +got; -update rewrites the file):\n%s", path, diff)
			}
		})
	}
}

func TestDisabledFeaturesCreateNoChains(t *testing.T) {
	for _, tc := range []struct {
		name   string
		r      rules.Redirect
		chains string
	}{
		{
			"no capture: only the proxy's calls to its own pod", rules.DefaultRedirect(),
			"nat-output nat-output-lo",
		},
		{"REDIRECT", typical(), "nat-prerouting nat-output nat-output-lo"},
		{
			"no inbound: a chain with only the rule that excludes IPv6 is omitted",
			typical(func(r *rules.Redirect) {
				r.InboundPorts.All = false
			}), "nat-output nat-output-lo",
		},
		{"only excluded interfaces at the hook", typical(func(r *rules.Redirect) {
			r.InboundPorts.All = false
			r.ExcludeInterfaces = interfaceNames("net1")
		}), "nat-output nat-output-lo"},
		{"a rerouted interface without destinations", typical(func(r *rules.Redirect) {
			r.InboundPorts.All, r.OutboundCIDRs.All = false, false
			r.RerouteInterfaces = interfaceNames("eth1")
		}), "nat-output nat-output-lo"},
		{"dropping invalid packets", typical(func(r *rules.Redirect) {
			r.DropInvalid = true
		}), "mangle-prerouting nat-prerouting nat-output nat-output-lo"},
		{"TPROXY", typical(tproxyMode), "mangle-prerouting mangle-output nat-output nat-output-lo"},
		{
			"TPROXY and a rerouted interface", typical(tproxyMode, func(r *rules.Redirect) {
				r.RerouteInterfaces = interfaceNames("eth1")
			}),
			"mangle-prerouting mangle-output nat-prerouting nat-output nat-output-lo",
		},
		{
			"all DNS", typical(cniDefaults),
			"raw-prerouting raw-output nat-prerouting nat-output nat-output-lo",
		},
		{
			"DNS servers of another family", typical(servers("fd00::a")),
			"raw-output nat-prerouting nat-output nat-output-lo",
		},
		{"DNS without servers", typical(servers()), "nat-prerouting nat-output nat-output-lo"},
		{
			"owner groups", typical(func(r *rules.Redirect) {
				r.OwnerGroups = rules.GroupSelection{IDs: ids("202")}
			}),
			"nat-prerouting nat-output nat-output-lo nat-output-groups",
		},
		{"no owner groups", typical(func(r *rules.Redirect) {
			r.OwnerGroups.All = false
		}), "nat-prerouting nat-output nat-output-lo"},
		{"owner groups without destinations", typical(func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{IDs: ids("202")}
			r.OutboundCIDRs.All = false
		}), "nat-prerouting nat-output nat-output-lo"},
		{
			"everything", typical(mostParameters, tproxyMode),
			"raw-prerouting raw-output mangle-prerouting mangle-output nat-prerouting nat-output nat-output-lo nat-output-groups",
		},
	} {
		var names []string
		for _, c := range compile(t, tc.r).Tables[0].Chains {
			names = append(names, c.Name)
			if len(c.Rules) == 0 {
				t.Errorf("%s: chain %s is empty", tc.name, c.Name)
			}
		}
		if got := strings.Join(names, " "); got != tc.chains {
			t.Errorf("%s: chains %s, want %s", tc.name, got, tc.chains)
		}
	}
}

func TestDisabledFeaturesCreateNoRules(t *testing.T) {
	contains := func(r rules.Redirect, text string) bool {
		return strings.Contains(compile(t, r).String(), text)
	}
	withoutDNS := typical(func(r *rules.Redirect) { r.OutboundExcludePorts = ports("53") })
	withDNS := typical(servers("10.96.0.10"), func(r *rules.Redirect) {
		r.OutboundExcludePorts = ports("53")
	})
	if contains(withoutDNS, "udp") || !contains(withDNS, "udp dport 53 return") {
		t.Error("with the excluded port 53, want a UDP rule if and only if DNS is captured")
	}
	if contains(typical(servers("10.96.0.10"), func(r *rules.Redirect) {
		r.OutboundExcludePorts = ports("54")
	}), "udp dport 54") {
		t.Error("excluded ports other than 53 must have no UDP rule")
	}
	if contains(typical(), "nat-output-groups") {
		t.Error("without owner groups there must be no rules for them")
	}
	if contains(typical(ipv6), "nfproto") {
		t.Error("with both families there must be no rule that excludes IPv6")
	}
}

func TestRouting(t *testing.T) {
	policy := func(f rules.Family) rules.PolicyRoute {
		return rules.PolicyRoute{Family: f, Mark: 1337, Table: 133, Priority: rules.PolicyPriority}
	}
	passthrough := []netip.Addr{rules.PassthroughIPv6()}
	for _, tc := range []struct {
		name string
		r    rules.Redirect
		want rules.Routing
	}{
		{"REDIRECT in IPv4 needs no routing", typical(), rules.Routing{}},
		{
			"IPv6 needs the address from which the proxy calls the application", typical(ipv6),
			rules.Routing{LoopbackAddrs: passthrough},
		},
		{
			"TPROXY needs a policy route", typical(tproxyMode),
			rules.Routing{Policies: []rules.PolicyRoute{policy(rules.IPv4)}},
		},
		{
			"TPROXY in both families needs two policy routes", typical(tproxyMode, ipv6),
			rules.Routing{
				Policies:      []rules.PolicyRoute{policy(rules.IPv4), policy(rules.IPv6)},
				LoopbackAddrs: passthrough,
			},
		},
		{"TPROXY without inbound capture needs no policy route", typical(tproxyMode, func(r *rules.Redirect) {
			r.InboundPorts.All = false
		}), rules.Routing{}},
	} {
		got := compile(t, tc.r).Routing
		if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Addr) bool {
			return a == b
		})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if got.IsZero() != (len(tc.want.Policies)+len(tc.want.LoopbackAddrs) == 0) {
			t.Errorf("%s: IsZero is %t, want %t", tc.name, got.IsZero(), !got.IsZero())
		}
	}
}

func TestPrioritiesAreTenLowerThanIstiosUnlessStrict(t *testing.T) {
	priorities := func(strict bool) string {
		r := typical(mostParameters, tproxyMode)
		if strict {
			r.StrictIstio()
		}
		var texts []string
		for _, c := range compile(t, r).Tables[0].Chains {
			if c.Base != nil {
				texts = append(texts,
					fmt.Sprintf("%s %s %d", c.Base.Hook, c.Base.Type, c.Base.Priority))
			}
		}
		return strings.Join(texts, ", ")
	}
	const sluicePriorities = "prerouting filter -310, output filter -310, " +
		"prerouting filter -160, output route -160, prerouting nat -110, output nat -110"
	if got := priorities(false); got != sluicePriorities {
		t.Errorf("got %s, want %s", got, sluicePriorities)
	}
	const istioPriorities = "prerouting filter -300, output filter -300, " +
		"prerouting filter -150, output route -150, prerouting nat -100, output nat -100"
	if got := priorities(true); got != istioPriorities {
		t.Errorf("strict: got %s, want %s", got, istioPriorities)
	}
}

// TestRulesAreInTheFormThatBackendsExpect verifies for every rule that its matches are in canonical
// order, that its comment is not too long, and that the targets of its jumps exist.
func TestRulesAreInTheFormThatBackendsExpect(t *testing.T) {
	for _, r := range []rules.Redirect{
		typical(mostParameters), typical(mostParameters, tproxyMode), typical(cniDefaults),
		typical(mostParameters, tproxyMode, func(r *rules.Redirect) { r.KeepEstablished = true }),
		typical(func(r *rules.Redirect) {
			r.OwnerGroups = rules.GroupSelection{IDs: ids("202")}
			r.OutboundCIDRs.All = false
		}),
	} {
		table := compile(t, r).Tables[0]
		for _, c := range table.Chains {
			for _, rule := range c.Rules {
				sorted := slices.Clone(rule.Matches)
				rules.SortMatches(sorted)
				if !rules.Equal(inOneChain(rules.Rule{Matches: sorted}),
					inOneChain(rules.Rule{Matches: rule.Matches})) {
					t.Errorf("%s: %s: matches are not in canonical order", c.Name, &rule)
				}
				if len(rule.Comment) == 0 || len(rule.Comment) > 128 {
					t.Errorf("%s: %s: comment %q has %d bytes, want 1 to 128", c.Name, &rule,
						rule.Comment, len(rule.Comment))
				}
				for _, a := range rule.Actions {
					if jump, ok := a.(rules.Jump); ok && table.Chain(jump.Chain) == nil {
						t.Errorf("%s: %s: the target of the jump does not exist", c.Name, &rule)
					}
				}
			}
		}
		if got := len(table.Sets()); got == 0 && len(r.OutboundExcludeCIDRs) > 1 {
			t.Errorf("no named set, want one for the %d excluded prefixes",
				len(r.OutboundExcludeCIDRs))
		}
	}
}

func TestAppendingToTheSlicesOfARuleChangesNoOtherRule(t *testing.T) {
	r := typical(mostParameters)
	changed, want := compile(t, r), compile(t, r)
	for _, c := range changed.Tables[0].Chains {
		for _, rule := range c.Rules {
			_ = append(rule.Matches, rules.Match(rules.MatchFamily{Family: rules.IPv6}))
			_ = append(rule.Actions, rules.Action(rules.Drop))
		}
	}
	if !rules.Equal(want, changed) {
		t.Errorf("appending to the slices of a rule changed the ruleset to\n%s", changed)
	}
}

// TestInvalidParametersDoNotCompile verifies that Compile returns the error of Validate, and that
// MustCompile panics with it.
func TestInvalidParametersDoNotCompile(t *testing.T) {
	noPort := rules.DefaultRedirect()
	noPort.ProxyPort = 0
	for name, r := range map[string]rules.Redirect{"the zero value": {}, "no proxy port": noPort} {
		t.Run(name, func(t *testing.T) {
			rs, err := rules.Compile(r)
			if faults := rules.Faults(nil); !errors.As(err, &faults) ||
				err.Error() != r.Validate().Error() {
				t.Errorf("error %v, want %v", err, r.Validate())
			}
			if len(rs.Tables) > 0 {
				t.Errorf("want no ruleset together with the error, got\n%s", rs)
			}
			defer func() {
				if err, ok := recover().(error); !ok ||
					!strings.Contains(err.Error(), "ProxyPort") {
					t.Errorf("MustCompile panics with %v, want an error that names ProxyPort", err)
				}
			}()
			rules.MustCompile(r)
		})
	}
}

// inOneChain returns a ruleset with the rules in one chain.
func inOneChain(list ...rules.Rule) rules.Ruleset {
	return rules.Ruleset{Tables: []rules.Table{{
		Name: "t", Chains: []rules.Chain{{Name: "c", Rules: list}},
	}}}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []struct{ ipv4, ipv6 int }{
		{0, 0}, {1000, 0}, {10_000, 0}, {500, 500}, {5000, 5000}, {0, 10_000},
	} {
		r := typical(cniDefaults)
		r.OutboundExcludeCIDRs = manyPrefixes(n.ipv4, n.ipv6)
		b.Run(fmt.Sprintf("ipv4=%d/ipv6=%d", n.ipv4, n.ipv6), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rules.Compile(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyPrefixes returns unsorted prefixes that are neither overlapping nor adjacent.
func manyPrefixes(ipv4, ipv6 int) []netip.Prefix {
	var prefixes []netip.Prefix
	for i := range ipv4 {
		i = i * 7919 % max(ipv4, 1)
		prefixes = append(prefixes,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 128}), 25))
	}
	for i := range ipv6 {
		i = i * 7919 % max(ipv6, 1)
		prefixes = append(prefixes,
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 1, byte(i >> 8), byte(i), 1}), 48))
	}
	return prefixes
}

func TestManyPrefixesBecomeOneSetPerFamily(t *testing.T) {
	r := typical(ipv6, func(r *rules.Redirect) {
		r.OutboundExcludeCIDRs = manyPrefixes(5000, 5000)
	})
	table := compile(t, r).Tables[0]
	var names []string
	for _, s := range table.Sets() {
		names = append(names, fmt.Sprintf("%s: %d", s.Set, len(s.Ranges)))
	}
	if got, want := strings.Join(names, ", "),
		"outbound-exclude-ipv4: 5000, outbound-exclude-ipv6: 5000"; got != want {
		t.Errorf("sets %s, want %s", got, want)
	}
}
