package istio_test

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A finding is a difference between the rules that istio-iptables writes with --native-nftables and
// the rules that it writes with iptables. The tests call the rules with --native-nftables
// istio-nftables' rules.
type finding struct {
	id, description string
	// repair changes istio-nftables' rules to remove the difference. If all findings are repaired,
	// the rules are equivalent to istio-iptables' rules. If one finding is not repaired, exactly
	// its packets differ.
	repair func(s testCase, rs *rules.Ruleset)
	// expected reports whether packets of the finding exist. It derives this from the parameters.
	expected func(r rules.Redirect) bool
}

// findings contains all known findings except dryRun.
var findings = []finding{
	{
		"ipv6-captured", "IPv6 is captured in a pod that is configured as IPv4-only",
		func(s testCase, rs *rules.Ruleset) {
			if !s.redirect.IPv6 {
				changeRules(rs, func(c *rules.Chain, r *rules.Rule) {
					if c.Base != nil {
						r.Matches = append(r.Matches, rules.MatchFamily{Family: rules.IPv4})
					}
				})
			}
		},
		func(r rules.Redirect) bool {
			// A rule that matches addresses applies to one family, any other rule to both.
			return !r.IPv6 && (hasInbound(r) || r.Mode == rules.ModeTProxy || r.DropInvalid ||
				r.DNS.Capture || capturesAnywhere(r))
		},
	},
	{
		"drop-invalid-tcp", "only invalid TCP packets are dropped, no other invalid packets",
		func(_ testCase, rs *rules.Ruleset) {
			changeRules(rs, func(_ *rules.Chain, r *rules.Rule) {
				isInvalid := func(m rules.Match) bool {
					return m == rules.MatchState{States: rules.States(rules.Invalid)}
				}
				if slices.ContainsFunc(r.Matches, isInvalid) {
					r.Matches = slices.DeleteFunc(r.Matches, isProtocol)
				}
			})
		},
		func(r rules.Redirect) bool { return r.DropInvalid },
	},
	{
		"no-listener",
		"if no proxy listens, inbound connections in TPROXY mode reach the application instead of being refused",
		func(_ testCase, rs *rules.Ruleset) {
			changeChains(rs, func(c *rules.Chain) {
				var repaired []rules.Rule
				for _, r := range c.Rules {
					repaired = append(repaired, r)
					if slices.ContainsFunc(r.Actions, isTProxy) {
						repaired = append(repaired, rules.Rule{
							Matches: r.Matches, Actions: []rules.Action{rules.Drop},
						})
					}
				}
				c.Rules = repaired
			})
		},
		func(r rules.Redirect) bool { return r.Mode == rules.ModeTProxy && hasInbound(r) },
	},
	{
		"socketless",
		"a packet over lo without a socket of a user is captured, and matches captured owner groups",
		func(_ testCase, rs *rules.Ruleset) {
			changeRules(rs, func(_ *rules.Chain, r *rules.Rule) {
				for i, m := range r.Matches {
					if owner, ok := m.(rules.MatchOwner); ok {
						owner.Socketless = owner.Not
						r.Matches[i], r.XTables = owner, true
					}
				}
			})
		},
		func(r rules.Redirect) bool {
			overLo := !hasLoopback(r.OutboundCIDRs.Prefixes) &&
				!slices.ContainsFunc(r.ExcludeInterfaces,
					func(n rules.InterfaceName) bool { return n.Contains("lo") })
			if r.OwnerGroups.All {
				return overLo && capturesOutbound(r)
			}
			return capturesOutbound(r) || hasGroups(r) && capturesDNS(r)
		},
	},
}

func isProtocol(m rules.Match) bool { _, ok := m.(rules.MatchProtocol); return ok }

func isTProxy(a rules.Action) bool { _, ok := a.(rules.TProxy); return ok }

// changeChains calls change for each chain.
func changeChains(rs *rules.Ruleset, change func(*rules.Chain)) {
	for i := range rs.Tables {
		for j := range rs.Tables[i].Chains {
			change(&rs.Tables[i].Chains[j])
		}
	}
}

// changeRules calls change for each rule.
func changeRules(rs *rules.Ruleset, change func(*rules.Chain, *rules.Rule)) {
	changeChains(rs, func(c *rules.Chain) {
		for i := range c.Rules {
			change(c, &c.Rules[i])
		}
	})
}

// repaired returns a copy of istio-nftables' rules in which all findings are repaired, except the
// finding with the ID except.
func (s testCase) repaired(native rules.Ruleset, except string) rules.Ruleset {
	rs := clone(native)
	for _, f := range findings {
		if f.id != except {
			f.repair(s, &rs)
		}
	}
	return rs
}

// clone copies the parts that the repairs change.
func clone(rs rules.Ruleset) rules.Ruleset {
	rs.Tables = slices.Clone(rs.Tables)
	for i := range rs.Tables {
		t := &rs.Tables[i]
		t.Chains = slices.Clone(t.Chains)
		for j := range t.Chains {
			c := &t.Chains[j]
			c.Rules = slices.Clone(c.Rules)
			for k := range c.Rules {
				c.Rules[k].Matches = slices.Clone(c.Rules[k].Matches)
			}
		}
	}
	return rs
}
