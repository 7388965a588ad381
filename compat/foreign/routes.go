package foreign

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// unknownRoutes returns a sentence if routes and foreign rules together may route captured packets
// past the proxy: a route sends the packets over lo, where the ruleset does not capture them, and a
// rule at output then routes them again, by another interface. The kernel passes the interface of
// the first route, lo, to all chains at output. [diff.Bypass] does not evaluate these routes, and
// does not compare packets that the kernel sends over lo because of the mark of their socket.
func unknownRoutes(live *compat.Live, desired *rules.Ruleset) []string {
	routes := slices.Clone(live.LoopbackRoutes.OverLoopback)
	for _, p := range live.Ruleset.Routing.Policies {
		if !slices.ContainsFunc(desired.Routing.Policies, func(d rules.PolicyRoute) bool {
			return d.Family == p.Family && d.Marked() == p.Marked()
		}) {
			routes = append(routes, p.String())
		}
	}
	if len(routes) == 0 {
		return nil
	}
	step := reroutingStep(live)
	if step == nil {
		return nil
	}
	return []string{fmt.Sprintf("routes send packets over lo, where they are not captured, and "+
		"this rule may route them to another host: %s: %s (%s)", OwnerOf(&live.Ruleset, step), step,
		listed(routes))}
}

// listed returns the first maxClasses texts, separated by commas.
func listed(texts []string) string {
	text := strings.Join(texts[:min(len(texts), maxClasses)], ", ")
	if len(texts) > maxClasses {
		text += ", and more"
	}
	return text
}

// unknownEncapsulation returns a sentence if packets that the desired ruleset captures may leave or
// reach the namespace encapsulated. The chains then see only the outer packets.
func unknownEncapsulation(live *compat.Live, desired *rules.Ruleset) []string {
	var found []string
	for _, d := range live.LoopbackRoutes.Encapsulating {
		if d.Family == rules.Inet || mayRedirectAtOutput(desired, d.Family) {
			found = append(found, d.Text)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []string{"routes encapsulate packets that they send over lo, where they are not " +
		"captured, or decapsulate packets after prerouting, so that packets may bypass the " +
		"proxy: " + listed(found)}
}

// unknownSources returns a sentence if connections of the proxy to the pod itself may have the
// source address by which the desired ruleset recognizes the proxy's connections to the
// application. [diff.Bypass] assumes that the proxy chooses this source.
func unknownSources(live *compat.Live, desired *rules.Ruleset) []string {
	var found []string
	for _, d := range live.LoopbackRoutes.Passthrough {
		if excludesPassthrough(desired, d.Family) {
			found = append(found, d.Text)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("connections of the outbound proxy to the pod itself may reach the "+
		"application without the inbound proxy: routes give them the source %s or %s, which the rules "+
		"take for the inbound proxy's connections to the application: %s", rules.PassthroughIPv4(),
		rules.PassthroughIPv6(), listed(found))}
}

// excludesPassthrough reports whether the ruleset has a rule for packets from the source address of
// the proxy's connections to the application.
func excludesPassthrough(rs *rules.Ruleset, family rules.Family) bool {
	address := rules.ByFamily(family, rules.PassthroughIPv4(), rules.PassthroughIPv6())
	isPassthrough := func(m rules.Match) bool {
		a, ok := m.(rules.MatchAddr)
		return ok && a.Side == rules.Source && !a.Not &&
			slices.Equal(a.Ranges, []netipx.IPRange{netipx.IPRangeFrom(address, address)})
	}
	for _, c := range rs.AllChains() {
		if slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.ContainsFunc(r.Matches, isPassthrough)
		}) {
			return true
		}
	}
	return false
}

// unknownDelivery returns a sentence if packets that the desired ruleset redirects to a loopback
// address may leave the namespace.
func unknownDelivery(live *compat.Live, desired *rules.Ruleset) []string {
	var found []string
	for _, d := range slices.Concat(live.PrecedingLocal, live.UndeliveredLoopback) {
		if mayRedirectAtOutput(desired, d.Family) {
			found = append(found, d.Text)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []string{"captured packets are redirected to a loopback address, and policy rules or " +
		"routes may send packets to this address to another host: " + listed(found)}
}

// isLoopbackMissing reports whether no packet to a loopback address has its local route, although
// the kernel looks up the table local first.
func isLoopbackMissing(live *compat.Live) bool {
	return len(live.PrecedingLocal) == 0 && len(live.UndeliveredLoopback) > 0 &&
		!slices.ContainsFunc(live.UndeliveredLoopback, func(d route.Description) bool {
			return d.Selective
		})
}

// mayRedirectAtOutput reports whether the ruleset may redirect packets of the family at output.
func mayRedirectAtOutput(rs *rules.Ruleset, family rules.Family) bool {
	// The chains of a ruleset that does not capture IPv6 begin with a rule that returns IPv6
	// packets.
	returnsForFamily := func(r rules.Rule) bool {
		return slices.Equal(r.Matches, []rules.Match{rules.MatchFamily{Family: family}}) &&
			slices.Equal(r.Actions, []rules.Action{rules.Return})
	}
	for _, c := range rs.BaseChains(rules.Output) {
		if c.Table.Family != rules.Inet && c.Table.Family != family ||
			len(c.Chain.Rules) > 0 && returnsForFamily(c.Chain.Rules[0]) {
			continue
		}
		for _, reachable := range c.Table.ReachableFrom(c.Chain) {
			if reachable.HasAction(func(a rules.Action) bool {
				_, ok := a.(rules.RedirectTo)
				return ok
			}) {
				return true
			}
		}
	}
	return false
}

// translatesDestinations reports whether a foreign rule may translate the destination of packets.
// The effect then depends on the addresses of the namespace ([diff.Options]).
func translatesDestinations(live *compat.Live) bool {
	for t, c := range live.Ruleset.AllChains() {
		for step := range stepsWith(t, c, func(a rules.Action) bool {
			switch a.(type) {
			case rules.DNATTo, rules.DNATPort:
				return true
			}
			return false
		}) {
			if OwnerOf(&live.Ruleset, &step) != OwnerSluice {
				return true
			}
		}
	}
	return false
}

// reroutingStep returns the first foreign rule that may make the kernel route packets of local
// sockets, or copies of these packets, again. It returns nil if there is none.
func reroutingStep(live *compat.Live) *rules.Step {
	for i := range live.Ruleset.Tables {
		t := &live.Ruleset.Tables[i]
		for j := range t.Chains {
			base := t.Chains[j].Base
			if base == nil || base.Hook == rules.Input || base.Hook == rules.Forward {
				continue // see unknownAtInput
			}
			reroutes := func(a rules.Action) bool { return mayReroute(base, a) }
			for _, c := range t.ReachableFrom(&t.Chains[j]) {
				for step := range stepsWith(t, c, reroutes) {
					if OwnerOf(&live.Ruleset, &step) != OwnerSluice {
						return &step
					}
				}
			}
		}
	}
	return nil
}

// mayReroute reports whether the action, in a chain at output, prerouting or postrouting, may make
// the kernel route the packet or a copy of it again. At output, the kernel routes a packet again if
// a chain of type route changes its mark or a header field on which the route depends, or if a
// chain of type nat changes its destination address. In any chain, an action with the effect
// AnyEffect may copy the packet to another host, or queue it to a program that changes it.
func mayReroute(base *rules.Base, a rules.Action) bool {
	if hasAnyEffect(a) {
		return true
	}
	isRoute := base.Type == rules.Route
	if base.Hook != rules.Output || !isRoute && base.Type != rules.NAT {
		return false
	}
	switch a := a.(type) {
	case rules.SetMark, rules.RestoreMark:
		return isRoute
	case rules.MixMark:
		return isRoute && !a.Conntrack
	case rules.DNATTo:
		return !isRoute
	case rules.Unknown:
		return isRoute && (a.Effect == rules.WritesMark ||
			a.Effect == rules.WritesHeader && a.State == rules.RoutedHeader)
	}
	return false
}
