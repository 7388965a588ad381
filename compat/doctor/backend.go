package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// isOurs reports whether the table has chains of Sluice.
func (t *LegacyTable) isOurs() bool {
	return slices.ContainsFunc(t.Chains, func(chain string) bool {
		return strings.HasPrefix(chain, compat.ChainPrefix)
	})
}

// inLegacy returns the names of the tables of iptables-legacy with rules of Sluice.
func (j *judge) inLegacy() []string {
	var names []string
	for i := range j.Legacy {
		if t := &j.Legacy[i]; t.isOurs() {
			names = append(names, fmt.Sprintf("%s (IPv%d)", t.Name, t.Family))
		}
	}
	return names
}

// missingNFT returns the missing features of nf_tables that the parameters need.
func (j *judge) missingNFT() []nft.Feature {
	if j.TablesErr != nil && nft.IsNotSupported(j.TablesErr) {
		return []nft.Feature{nft.FeatureTables}
	}
	var lacking []nft.Feature
	for _, s := range j.Features {
		if s.Err != nil && j.needs(s.Feature) {
			lacking = append(lacking, s.Feature)
		}
	}
	return lacking
}

// missingLegacy returns the missing features of iptables-legacy.
func (j *judge) missingLegacy() []nft.Feature {
	var lacking []nft.Feature
	for _, s := range j.LegacyFeatures {
		if s.Err != nil {
			lacking = append(lacking, s.Feature)
		}
	}
	return lacking
}

// usesLegacy reports whether the rules are or will be in iptables-legacy.
func (j *judge) usesLegacy() bool {
	switch j.Backend {
	case compat.BackendNFT:
		return false
	case compat.BackendLegacy:
		return true
	}
	return len(j.missingNFT()) > 0 && len(j.LegacyFeatures) > 0 && len(j.missingLegacy()) == 0
}

// legacyKernel reports the kernel's features of iptables-legacy.
func (j *judge) legacyKernel() {
	lacking := j.missingLegacy()
	switch {
	case len(j.LegacyFeatures) == 0 && j.Backend == compat.BackendLegacy:
		j.add("kernel", Note,
			fmt.Sprintf("the features of iptables-legacy in Linux %s could not be determined, which needs CAP_SYS_ADMIN", j.Kernel),
			"run rules doctor as root to determine the kernel's features")
	case len(j.LegacyFeatures) == 0:
	case len(lacking) > 0 && (j.Backend == compat.BackendLegacy ||
		j.Backend != compat.BackendNFT && len(j.missingNFT()) > 0):
		for _, f := range lacking {
			j.prevent("kernel",
				fmt.Sprintf("Linux %s lacks %s, which these parameters need", j.Kernel, f.Name),
				fmt.Sprintf("a kernel with %s (Linux %s or later)", f.Option, f.Since))
		}
	case len(lacking) > 0:
		j.add("kernel", Note,
			fmt.Sprintf("Linux %s lacks %s: these parameters can have nf_tables only", j.Kernel,
				lacking[0].Name), "")
	case j.usesLegacy():
		j.add("kernel", OK,
			fmt.Sprintf("Linux %s has all that these parameters need of iptables-legacy, which has the rules", j.Kernel), "")
	default:
		j.add("kernel", OK,
			fmt.Sprintf("Linux %s has all that these parameters need of iptables-legacy, too",
				j.Kernel), "")
	}
}

// actualPriorities returns the parameters with the actual priorities of the rules: in
// iptables-legacy always Istio's.
func (j *judge) actualPriorities() rules.Redirect {
	r := j.redirect
	if j.ours() == nil && (len(j.inLegacy()) > 0 || j.usesLegacy()) {
		r.Without = append(slices.Clone(r.Without), rules.NATFirst)
	}
	return r
}

// installed reports the backend that holds Sluice's rules.
func (j *judge) installed() {
	legacy := j.inLegacy()
	const whether = "rules check compares them with the parameters"
	switch t := j.ours(); {
	case t != nil && len(legacy) > 0:
		j.add("rules", Warning,
			fmt.Sprintf("rules of Sluice are in table inet %s and in iptables-legacy's tables %s: both backends capture", t.Name,
				strings.Join(legacy, ", ")), "rules apply leaves one of the two")
	case t != nil:
		j.add("rules", OK,
			fmt.Sprintf("table inet %s exists, with %s; %s", t.Name,
				countText(countRules(t), "rule"), whether), "")
	case len(legacy) > 0:
		j.add("rules", OK,
			fmt.Sprintf("rules of Sluice are in iptables-legacy's tables %s; %s",
				strings.Join(legacy, ", "), whether), "")
	default:
		j.add("rules", Note, "there are no rules of Sluice", "rules apply creates them")
	}
}
