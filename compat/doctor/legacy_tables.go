package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/istio"
	"github.com/sluice-mesh/sluice/rules"
)

// legacy reports the tables of iptables-legacy.
func (d *diagnosis) legacy() {
	if d.LegacyErr != nil {
		why := strings.ReplaceAll(d.LegacyErr.Error(), "\n", "; ")
		d.add("rules", Note, "whether iptables-legacy has tables here is not known: "+why, "")
	}
	tables := slices.Clone(d.Legacy)
	slices.SortFunc(tables, func(a, b LegacyTable) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range tables {
		name := fmt.Sprintf("table %s of iptables-legacy (IPv%d)", t.Name, t.Family)
		hasIstioChains := slices.ContainsFunc(t.Chains, func(chain string) bool {
			return strings.HasPrefix(chain, istio.ChainPrefix)
		})
		switch {
		case t.Err != nil:
			d.add("rules", Warning,
				fmt.Sprintf("%s exists, but its content is unknown: %v", name, t.Err), "")
		case t.Rules == 0:
			d.add("rules", Note, name+" is empty: reading it with iptables-legacy created it", "")
		case hasIstioChains:
			d.istioRules(fmt.Sprintf("%s has %s, those of istio-iptables among them", name,
				countText(t.Rules, "rule")),
				slices.Contains(t.Chains, istio.ChainPrefix+"TPROXY"))
		case t.hasSluiceChains():
			d.add("rules", Note,
				fmt.Sprintf("%s has %s, including Sluice's, which run before the others", name,
					countText(t.Rules, "rule")), "")
		case t.Name == "nat" && !d.usesLegacy():
			d.legacyNAT(name, t)
		default:
			d.add("rules", Note, fmt.Sprintf("%s has %s", name, countText(t.Rules, "rule")), "")
		}
	}
}

// legacyNAT reports NAT of iptables-legacy, which runs at iptables' own priority.
func (d *diagnosis) legacyNAT(name string, t LegacyTable) {
	verdict := fmt.Sprintf("%s has %s of NAT, at priority %d", name, countText(t.Rules, "rule"),
		rules.IstioNATPriority)
	if ours := d.natPriority(); ours < rules.IstioNATPriority {
		d.add("rules", Note,
			fmt.Sprintf("%s: they run after Sluice's (%d), and are not evaluated for connections that Sluice's rules redirect", verdict, ours), "")
		return
	}
	d.add("rules", Warning,
		verdict+", the priority of Sluice's: the chain registered last runs first, and the other one is not evaluated for connections that it translates",
		d.orderAdvice())
}
