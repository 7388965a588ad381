package doctor

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// localTable is the routing table of local addresses (RT_TABLE_LOCAL).
const localTable = 255

// checkMarkRules reports policy rules that precede Sluice's policy rules for packets with the mark
// of the redirection, and repeated policy rules of Istio. If the redirection has no policy rules,
// checkMarkRules instead reports foreign policy rules with the priority of Sluice's policy rules.
func (d *diagnosis) checkMarkRules() {
	marked := d.markedRoute()
	mark := marked.mark
	ruleCount := map[rules.Family]int{} // the number of policy rules like Sluice's
	found := similarFindings{}
	for _, r := range d.PolicyRules {
		if r.Mark == mark && r.Mask == marked.mask && !r.HasOthers &&
			r.Table == marked.table {
			ruleCount[r.Family]++
			continue
		}
		// The kernel lists the rules of a family in their order.
		isLater := r.Priority > rules.PolicyPriority ||
			r.Priority == rules.PolicyPriority && ruleCount[r.Family] > 0
		matchesMark := r.Mask == 0 || mark&r.Mask == r.Mark
		// Each namespace has a rule for the local table, with priority 0.
		isLocal := r.Table == localTable && r.Mask == 0
		if marked.used && matchesMark && !isLater && !isLocal {
			severity, match := Problem, "match"
			if r.HasOthers {
				severity, match = Warning, "may match"
			}
			d.addSimilar(found, severity,
				fmt.Sprintf("packets with %s mark %#x %s another rule first: %s", marked.markOwner,
					mark, match, r.Text),
				fmt.Sprintf("give that rule a higher priority number than %d%s", rules.PolicyPriority,
					marked.alternative))
		}
		if r.Priority == rules.PolicyPriority && !marked.used {
			d.addSimilar(found, Note,
				fmt.Sprintf("a foreign policy rule has the priority of Sluice's policy rules, %d: %s",
					r.Priority, r.Text), "")
		}
	}
	d.addMore(found, "policy rules like these")
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if n := ruleCount[f]; n > 1 {
			d.add("routing", Note,
				fmt.Sprintf("IPv%d has %d rules for the mark %#x, which do the same: each run of"+
					" istio-iptables adds one", f, n, mark),
				"run rules cleanup --istio to remove them, and rules apply to add one")
		}
	}
}

// checkDroppingRules reports a policy rule that drops all packets because no rule precedes it, not
// even the rule for the table of local addresses.
func (d *diagnosis) checkDroppingRules() {
	hasEarlier := map[rules.Family]bool{}
	for _, r := range d.PolicyRules {
		if r.DropsAll && !hasEarlier[r.Family] && (r.Family == rules.IPv4 || d.redirect.IPv6) {
			d.add("routing", Problem, "the first policy rule drops all packets, also those to the proxy: "+
				r.Text, "remove that rule")
		}
		hasEarlier[r.Family] = true // the kernel lists the rules of a family in their order
	}
}

// similarFindings counts similar findings about routing by severity.
type similarFindings map[Severity]int

// maxSimilar is the maximum number of similar findings of a severity: a pod can add any number of
// policy rules and routes.
const maxSimilar = 10

// addSimilar adds a finding, unless there are maxSimilar similar ones, and counts it.
func (d *diagnosis) addSimilar(found similarFindings, severity Severity, summary, next string) {
	if found[severity]++; found[severity] <= maxSimilar {
		d.add("routing", severity, summary, next)
	}
}

// addMore adds a finding for each severity of which addSimilar has omitted findings. objects is the
// plural of what the findings are about.
func (d *diagnosis) addMore(found similarFindings, objects string) {
	for _, severity := range severities {
		if n := found[severity] - maxSimilar; n > 0 {
			next := "correct the listed ones, and run rules doctor again"
			if severity == Note {
				next = "" // notes need no correction
			}
			d.add("routing", severity, fmt.Sprintf("%s: %d more", objects, n), next)
		}
	}
}

// checkMarkRoutes reports foreign routes in the routing table that delivers marked packets to the
// local host.
func (d *diagnosis) checkMarkRoutes() {
	marked := d.markedRoute()
	if !marked.used {
		return
	}
	next := "choose another table with --istio-inbound-tproxy-route-table"
	if d.ambient != nil {
		next = "remove that route: the number of the table is fixed in ambient mode"
	}
	found := similarFindings{}
	for _, r := range d.Routes {
		if r.Table == marked.table && !r.IsLocalDefault {
			severity := Warning
			if r.IsDefault {
				severity = Problem
			}
			d.addSimilar(found, severity,
				fmt.Sprintf("table %d, which must deliver marked packets locally, has a foreign"+
					" route: %s", r.Table, r.Text), next)
		}
	}
	d.addMore(found, "foreign routes in this table")
}

// checkPassthrough reports a missing, misplaced or remaining address ::6, which is the proxy's
// source address for connections to the application.
func (d *diagnosis) checkPassthrough() {
	if d.InterfacesErr != nil || d.TablesErr != nil || d.ambient != nil {
		return
	}
	var device string // the interface that has the address
	for _, i := range d.Interfaces {
		if slices.Contains(i.Addrs, rules.PassthroughIPv6()) {
			device = i.Name
		}
	}
	installed := d.sluiceTable() != nil || len(d.sluiceLegacyTables()) > 0
	switch {
	case device != "" && device != lo:
		d.add("interfaces", Warning,
			fmt.Sprintf("%s has the address ::6, which the proxy needs on lo", device),
			"ip -6 address del ::6 dev "+device)
	case installed && d.redirect.IPv6 && device == "" && len(d.Interrupted) == 0:
		d.add("interfaces", Problem,
			"Sluice's rules exist, but lo lacks ::6, the source address of the proxy's connections"+
				" to the application",
			"run rules apply to add it")
	case device == lo && !installed:
		d.add("interfaces", Note,
			"lo has ::6, but there are no rules of Sluice: another program added it, or it remains"+
				" from earlier rules",
			"run rules cleanup to remove it, even if Istio added it")
	}
}
