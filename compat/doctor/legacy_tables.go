package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/rules"
)

// checkLegacy reports the tables of iptables-legacy.
func (d *diagnosis) checkLegacy() {
	if d.LegacyErr != nil {
		reason := strings.ReplaceAll(d.LegacyErr.Error(), "\n", "; ")
		d.add("rules", Note,
			"cannot list the iptables-legacy tables of this namespace: "+reason, "")
	}
	tables := slices.Clone(d.Legacy)
	slices.SortFunc(tables, func(a, b LegacyTable) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range tables {
		name := legacyName(t.Family, t.Name)
		hasIstioChains := slices.ContainsFunc(t.Chains, func(chain string) bool {
			return strings.HasPrefix(chain, istio.ChainPrefix)
		})
		switch {
		case t.Err != nil:
			d.add("rules", Warning,
				fmt.Sprintf("%s exists, but its content is unknown: %v", name, t.Err), "")
		case t.Rules == 0 && t.Content != nil && slices.ContainsFunc(t.Content.Chains, hasEffect):
			d.add("rules", Note, name+" has no rules, and drops packets by the policy of a chain", "")
		case t.Rules == 0:
			d.add("rules", Note,
				name+" is empty and has no effect; iptables-legacy creates the tables when it lists"+
					" rules", "")
		case hasIstioChains:
			summary := fmt.Sprintf("%s has %s, including rules of istio-iptables", name,
				countText(t.Rules, "rule"))
			// istio-iptables creates this chain only in TPROXY mode, in which its rules save marks.
			savesMarks := slices.Contains(t.Chains, istio.ChainPrefix+"TPROXY")
			d.addIstioFinding(summary, savesMarks)
		case t.hasSluiceChains():
			d.add("rules", Note, fmt.Sprintf("%s has %s, including Sluice's", name,
				countText(t.Rules, "rule")), "")
		case t.Name == "nat" && !d.usesLegacy():
			d.checkLegacyNAT(name, t)
		default:
			d.add("rules", Note, fmt.Sprintf("%s has %s", name, countText(t.Rules, "rule")), "")
		}
		d.checkLegacyInput(t.Content)
	}
}

// legacyName returns the display name of a table.
func legacyName(family rules.Family, table string) string {
	return fmt.Sprintf("table %s of iptables-legacy (IPv%d)", table, family)
}

// checkLegacyInput reports rules at input. table is nil if its content is unknown.
func (d *diagnosis) checkLegacyInput(table *rules.Table) {
	if table == nil {
		return
	}
	for i := range table.Chains {
		if c := &table.Chains[i]; c.Base != nil && c.Base.Hook == rules.Input {
			d.checkInputChain(table, c)
		}
	}
}

// foreignLegacy returns the tables of iptables-legacy with rules, or with a policy that drops
// packets. It omits tables with rules of Sluice, whose foreign rules are not evaluated; those that
// precede Sluice's rules are part of the comparison with the parameters.
func (d *diagnosis) foreignLegacy() []rules.Table {
	var found []rules.Table
	for _, t := range d.Legacy {
		if t.Content != nil && !t.hasSluiceChains() && slices.ContainsFunc(t.Content.Chains, hasEffect) {
			found = append(found, *t.Content)
		}
	}
	return found
}

// hasEffect reports whether a chain has rules, or drops packets by its policy.
func hasEffect(c rules.Chain) bool { return len(c.Rules) > 0 || c.Base != nil && c.Base.Drop }

// checkLegacyNAT reports the nat table of iptables-legacy. Its chains for destination NAT have the
// priority NF_IP_PRI_NAT_DST, which equals [rules.IstioNATPriority]. name is the display name of
// the table.
func (d *diagnosis) checkLegacyNAT(name string, t LegacyTable) {
	summary := fmt.Sprintf("%s has %s at priority %d", name, countText(t.Rules, "NAT rule"),
		rules.IstioNATPriority)
	if priority := d.natPriority(); priority < rules.IstioNATPriority {
		d.add("rules", Note,
			fmt.Sprintf("%s: they run after Sluice's rules (priority %d) and are skipped for"+
				" connections that Sluice redirects", summary, priority), "")
		return
	}
	d.add("rules", Warning,
		summary+", the same priority as Sluice's NAT chains: the chain registered last runs first,"+
			" and a connection that it translates skips the other chain",
		"either turn on the deviation nat-first (see rules help deviations), or remove the"+
			" NAT rules that translate the mesh's connections")
}
