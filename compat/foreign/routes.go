package foreign

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// unknownRoutes returns a sentence if foreign routes and foreign rules together may route captured
// packets past the proxy: a route sends the packets over lo, where the ruleset does not capture
// them, and a rule at output then routes them again, by another interface. The kernel passes the
// first interface to all chains at output. [diff.Bypass] does not evaluate foreign routes.
func unknownRoutes(live *compat.Live) []string {
	if len(live.UnmodeledRoutes) > 0 {
		if step := foreignStepAtOutput(live, changesRoute); step != nil {
			return []string{routesText(live.UnmodeledRoutes, step)}
		}
	}
	if len(live.LoopbackRoutes) > 0 {
		if step := foreignStepAtOutput(live, mayReroute); step != nil {
			return []string{routesText(live.LoopbackRoutes, step)}
		}
	}
	return nil
}

// routesText returns a sentence about routes and a rule.
func routesText(routes []string, step *rules.Step) string {
	listed := strings.Join(routes[:min(len(routes), maxClasses)], ", ")
	if len(routes) > maxClasses {
		listed += ", and more"
	}
	return fmt.Sprintf("packets that foreign routes send over lo are not captured there, and this rule "+
		"may route them to another host: %s: %s (%s)", OwnerOf(step), step, listed)
}

// foreignStepAtOutput returns the first foreign rule with a matching action that packets at output
// may reach, or nil.
func foreignStepAtOutput(
	live *compat.Live, matches func(rules.ChainType, rules.Action) bool,
) *rules.Step {
	for i := range live.Ruleset.Tables {
		t := &live.Ruleset.Tables[i]
		for j := range t.Chains {
			base := t.Chains[j].Base
			if base == nil || base.Hook != rules.Output {
				continue
			}
			for _, c := range t.ReachableFrom(&t.Chains[j]) {
				for k := range c.Rules {
					step := rules.Step{Table: t, Chain: c, Index: k}
					if OwnerOf(&step) != OwnerSluice && slices.ContainsFunc(c.Rules[k].Actions,
						func(a rules.Action) bool { return matches(base.Type, a) }) {
						return &step
					}
				}
			}
		}
	}
	return nil
}

// changesRoute reports whether the action, in a chain of the type at output, may change a mark or a
// part of the header that makes the kernel route the packet again.
func changesRoute(chain rules.ChainType, a rules.Action) bool {
	if chain != rules.Route {
		return false
	}
	switch a := a.(type) {
	case rules.SetMark, rules.RestoreMark:
		return true
	case rules.MixMark:
		return !a.Conntrack
	case rules.Unknown:
		return a.Effect == rules.AnyEffect || a.Effect == rules.WritesMark ||
			a.Effect == rules.WritesHeader && a.State == rules.RoutedHeader
	}
	return false
}

// mayReroute reports whether the action, in a chain of the type at output, may make the kernel
// route the packet again: [changesRoute], or a change of the destination address.
func mayReroute(chain rules.ChainType, a rules.Action) bool {
	if chain != rules.NAT {
		return changesRoute(chain, a)
	}
	switch a := a.(type) {
	case rules.DNATTo:
		return true
	case rules.Unknown:
		return a.Effect == rules.AnyEffect
	}
	return false
}
