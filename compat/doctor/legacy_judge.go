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
		isIstios := slices.ContainsFunc(t.Chains, func(chain string) bool { return strings.HasPrefix(chain, istio.ChainPrefix) })
		switch {
		case t.Err != nil:
			j.add("rules", Warning, fmt.Sprintf("%s exists, but what it holds is not known: %v", name, t.Err), "")
		case t.Rules == 0:
			j.add("rules", Note, name+" is empty: somebody has looked into it, which makes it", "")
		case isIstios:
			j.beside(fmt.Sprintf("%s has %s, those of istio-iptables among them", name, countText(t.Rules, "rule")),
				slices.Contains(t.Chains, istio.ChainPrefix+"TPROXY"))
		case t.isOurs():
			j.add("rules", Note, fmt.Sprintf("%s has %s, ours among them, which run before others' there", name, countText(t.Rules, "rule")), "")
		case t.Name == "nat" && !j.usesLegacy():
			j.legacyNAT(name, t)
		default:
			j.add("rules", Note, fmt.Sprintf("%s has %s", name, countText(t.Rules, "rule")), "")
		}
	}
}

// legacyNAT reports NAT of iptables-legacy, which runs at iptables' own priority.
func (j *judge) legacyNAT(name string, t LegacyTable) {
	verdict := fmt.Sprintf("%s has %s of NAT, at priority %d", name, countText(t.Rules, "rule"), rules.IstioNATPriority)
	if ours := j.natPriority(); ours < rules.IstioNATPriority {
		j.add("rules", Note, fmt.Sprintf("%s: they run after ours (%d), and a connection that ours redirect does not meet them", verdict, ours), "")
		return
	}
	j.add("rules", Warning, verdict+", the same as ours: whoever came last runs first, and what he translates is not the other's any more",
		j.beforeUs())
}
