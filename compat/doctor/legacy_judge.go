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
func (j *judge) legacy() {
	if j.LegacyErr != nil {
		why := strings.ReplaceAll(j.LegacyErr.Error(), "\n", "; ")
		j.add("rules", Note, "whether iptables-legacy has tables here is not known: "+why, "")
	}
	tables := slices.Clone(j.Legacy)
	slices.SortFunc(tables, func(a, b LegacyTable) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range tables {
		name := fmt.Sprintf("table %s of iptables-legacy (IPv%d)", t.Name, t.Family)
		isIstios := slices.ContainsFunc(t.Chains, func(chain string) bool {
			return strings.HasPrefix(chain, istio.ChainPrefix)
		})
		switch {
		case t.Err != nil:
			j.add("rules", Warning,
				fmt.Sprintf("%s exists, but its content is unknown: %v", name, t.Err), "")
		case t.Rules == 0:
			j.add("rules", Note, name+" is empty: reading it with iptables-legacy created it", "")
		case isIstios:
			j.istioRules(fmt.Sprintf("%s has %s, those of istio-iptables among them", name,
				countText(t.Rules, "rule")),
				slices.Contains(t.Chains, istio.ChainPrefix+"TPROXY"))
		case t.isOurs():
			j.add("rules", Note,
				fmt.Sprintf("%s has %s, including Sluice's, which run before the others", name,
					countText(t.Rules, "rule")), "")
		case t.Name == "nat" && !j.usesLegacy():
			j.legacyNAT(name, t)
		default:
			j.add("rules", Note, fmt.Sprintf("%s has %s", name, countText(t.Rules, "rule")), "")
		}
	}
}

// legacyNAT reports NAT of iptables-legacy, which runs at iptables' own priority.
func (j *judge) legacyNAT(name string, t LegacyTable) {
	verdict := fmt.Sprintf("%s has %s of NAT, at priority %d", name, countText(t.Rules, "rule"),
		rules.IstioNATPriority)
	if ours := j.natPriority(); ours < rules.IstioNATPriority {
		j.add("rules", Note,
			fmt.Sprintf("%s: they run after Sluice's (%d), and are not evaluated for connections that Sluice's rules redirect", verdict, ours), "")
		return
	}
	j.add("rules", Warning,
		verdict+", the priority of Sluice's: the chain registered last runs first, and the other one is not evaluated for connections that it translates",
		j.orderAdvice())
}
