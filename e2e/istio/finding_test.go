package istio_test

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A finding is a difference between istio-nftables and istio-iptables.
type finding struct {
	id, sentence string
	// repair changes istio-nftables' rules so that the difference disappears. With all findings
	// repaired, nothing differs. With all but one repaired, the packets that differ are those of
	// the remaining finding.
	repair func(s subject, rs *rules.Ruleset)
	// expected reports, from the parameters alone, whether such packets exist.
	expected func(r rules.Redirect) bool
}

// findings contains all known findings.
var findings = []finding{
	{
		"ipv6-captured", "IPv6 is captured in a pod that is treated as one of IPv4 only",
		func(s subject, rs *rules.Ruleset) {
			if !s.redirect.IPv6 {
				eachRule(rs, func(c *rules.Chain, r *rules.Rule) {
					if c.Base != nil {
						r.Matches = append(r.Matches, rules.MatchFamily{Family: rules.IPv4})
					}
				})
			}
		},
		func(r rules.Redirect) bool {
			// Rules with addresses are for one family; all others are for both.
			return !r.IPv6 && (hasInbound(r) || r.Mode == rules.ModeTProxy || r.DropInvalid ||
				r.DNS.Capture || capturesAnywhere(r))
		},
	},
	{
		"drop-invalid-tcp", "of the invalid packets only those of TCP are dropped",
		func(_ subject, rs *rules.Ruleset) {
			eachRule(rs, func(_ *rules.Chain, r *rules.Rule) {
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
		"while no proxy listens, inbound connections in TPROXY mode reach the application instead of nobody",
		func(_ subject, rs *rules.Ruleset) {
			eachChain(rs, func(c *rules.Chain) {
				var all []rules.Rule
				for _, r := range c.Rules {
					all = append(all, r)
					if slices.ContainsFunc(r.Actions, isTProxy) {
						all = append(all, rules.Rule{
							Matches: r.Matches, Actions: []rules.Action{rules.Drop},
						})
					}
				}
				c.Rules = all
			})
		},
		func(r rules.Redirect) bool { return r.Mode == rules.ModeTProxy && hasInbound(r) },
	},
	{
		"socketless",
		"a packet over lo that has no socket any more is captured, and one of no group counts as of a captured group",
		func(_ subject, rs *rules.Ruleset) {
			eachRule(rs, func(_ *rules.Chain, r *rules.Rule) {
				for i, m := range r.Matches {
					if owner, ok := m.(rules.MatchOwner); ok {
						owner.Socketless = owner.Not
						r.Matches[i] = owner
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

// eachChain calls change for each chain.
func eachChain(rs *rules.Ruleset, change func(*rules.Chain)) {
	for i := range rs.Tables {
		for j := range rs.Tables[i].Chains {
			change(&rs.Tables[i].Chains[j])
		}
	}
}

// eachRule calls change for each rule.
func eachRule(rs *rules.Ruleset, change func(*rules.Chain, *rules.Rule)) {
	eachChain(rs, func(c *rules.Chain) {
		for i := range c.Rules {
			change(c, &c.Rules[i])
		}
	})
}

// repaired returns a copy of istio-nftables' rules in which all findings except one are repaired.
func (s subject) repaired(native rules.Ruleset, but string) rules.Ruleset {
	rs := clone(native)
	for _, f := range findings {
		if f.id != but {
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
