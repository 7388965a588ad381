package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// hasSluiceChains reports whether the table has chains of Sluice.
func (t *LegacyTable) hasSluiceChains() bool {
	return slices.ContainsFunc(t.Chains, compat.IsSluiceChain)
}

// sluiceLegacyTables returns the names of the iptables-legacy tables that contain Sluice's rules.
func (d *diagnosis) sluiceLegacyTables() []string {
	var names []string
	for i := range d.Legacy {
		if t := &d.Legacy[i]; t.hasSluiceChains() {
			names = append(names, fmt.Sprintf("%s (IPv%d)", t.Name, t.Family))
		}
	}
	return names
}

// missingNFT returns the missing features of nf_tables that the parameters need.
func (d *diagnosis) missingNFT() []nft.Feature {
	if d.TablesErr != nil && nft.IsNotSupported(d.TablesErr) {
		return []nft.Feature{nft.FeatureTables}
	}
	var missing []nft.Feature
	for _, s := range d.Features {
		if s.Err != nil && s.Feature.IsNeededBy(&d.compiled) {
			missing = append(missing, s.Feature)
		}
	}
	return missing
}

// missingLegacy returns the missing iptables-legacy features that the parameters need.
func (d *diagnosis) missingLegacy() []nft.Feature {
	var missing []nft.Feature
	for _, s := range d.LegacyFeatures {
		if s.Err != nil {
			missing = append(missing, s.Feature)
		}
	}
	return missing
}

// usesLegacy reports whether rules apply would use iptables-legacy, because the user requests it,
// or because the kernel supports the parameters only with iptables-legacy.
func (d *diagnosis) usesLegacy() bool {
	switch d.Backend {
	case compat.BackendNFT:
		return false
	case compat.BackendLegacy:
		return true
	}
	return len(d.missingNFT()) > 0 && len(d.LegacyFeatures) > 0 && len(d.missingLegacy()) == 0
}

// checkLegacyKernel reports whether the kernel supports the iptables-legacy features that the
// parameters need.
func (d *diagnosis) checkLegacyKernel() {
	missing := d.missingLegacy()
	isRequired := d.Backend == compat.BackendLegacy ||
		d.Backend != compat.BackendNFT && len(d.missingNFT()) > 0
	switch {
	case len(d.LegacyFeatures) == 0 && d.Backend == compat.BackendLegacy:
		d.add("kernel", Note,
			fmt.Sprintf("cannot determine which features of iptables-legacy Linux %s supports:"+
				" this needs CAP_SYS_ADMIN", d.Kernel), runAsRoot)
	case len(d.LegacyFeatures) == 0: // neither probed nor requested
	case len(missing) > 0 && isRequired:
		for _, f := range missing {
			d.addUncorrectable("kernel",
				fmt.Sprintf("Linux %s lacks %s, which these parameters need", d.Kernel, f.Name),
				kernelWith(f))
		}
	case len(missing) > 0:
		d.add("kernel", Note,
			fmt.Sprintf("Linux %s lacks %s: these parameters work only with nf_tables", d.Kernel,
				missing[0].Name), "")
	case d.usesLegacy():
		d.add("kernel", OK,
			fmt.Sprintf("Linux %s supports the iptables-legacy features that these parameters need;"+
				" iptables-legacy is used", d.Kernel), "")
	default:
		d.add("kernel", OK, fmt.Sprintf(
			"Linux %s also supports the iptables-legacy features that these parameters need",
			d.Kernel), "")
	}
}

// deviationsWithoutEffect returns the deviation nat-first if the rules are, or would be, in
// iptables-legacy. Its tables, which Istio uses too, have fixed priorities.
func (d *diagnosis) deviationsWithoutEffect() []rules.DeviationID {
	if d.sluiceTable() == nil && (len(d.sluiceLegacyTables()) > 0 || d.usesLegacy()) {
		return []rules.DeviationID{rules.NATFirst}
	}
	return nil
}

// checkInstalled reports which backend holds Sluice's rules, and whether they differ from the
// parameters.
func (d *diagnosis) checkInstalled() {
	legacy := d.sluiceLegacyTables()
	d.checkDrift()
	switch t := d.sluiceTable(); {
	case t != nil && len(legacy) > 0:
		d.add("rules", Warning,
			fmt.Sprintf("rules of Sluice are in table inet %s and in iptables-legacy's tables %s:"+
				" both backends capture", t.Name, strings.Join(legacy, ", ")),
			"run rules apply to keep only one of the two")
	case t != nil:
		d.add("rules", OK,
			fmt.Sprintf("table inet %s exists, with %s", t.Name, countText(t.CountRules(), "rule")), "")
	case len(legacy) > 0:
		d.add("rules", OK,
			fmt.Sprintf("rules of Sluice are in iptables-legacy's tables %s",
				strings.Join(legacy, ", ")), "")
	default:
		d.add("rules", Note, "there are no rules of Sluice", "run rules apply to create them")
	}
}

// checkDrift reports that Sluice's rules differ from the parameters. The severity is Problem if
// traffic that the parameters capture therefore bypasses the proxy, and otherwise Warning.
func (d *diagnosis) checkDrift() {
	if d.DriftErr != nil {
		d.add("rules", Warning, "cannot compare Sluice's rules with these parameters: "+
			strings.ReplaceAll(d.DriftErr.Error(), "\n", "; "), "")
	}
	if len(d.Drift) == 0 {
		return
	}
	more := ""
	if n := len(d.Drift) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	severity, text := Warning, fmt.Sprintf(
		"Sluice's rules and routes differ from these parameters (%s%s)", d.Drift[0], more)
	if bypass := d.bypassByDrift(); bypass != "" {
		severity, text = Problem, text+": "+bypass
	}
	d.add("rules", severity, text,
		"run rules check to list all differences; run rules apply to correct them")
}

// bypassByDrift describes packets that bypass the proxy because Sluice's rules differ from the
// parameters, or returns "". If DriftEffect does not contain such packets, for example because the
// decision exceeded its budget, bypassByDrift evaluates samples.
func (d *diagnosis) bypassByDrift() string {
	if d.DriftEffect == nil {
		return ""
	}
	for _, b := range d.DriftEffect.Bypasses {
		if b.Owner == "" || b.Owner == foreign.OwnerSluice {
			return b.String()
		}
	}
	if d.sluiceTable() == nil {
		return "" // Tables does not contain the rules
	}
	installed := rules.Ruleset{Tables: []rules.Table{*d.sluiceTable()}, Routing: d.compiled.Routing}
	budget := d.Budget.From(time.Now()) // for all samples together
	for _, s := range d.samples() {
		alone := diff.ExplainWithin(&d.compiled, s.packet, budget).Outcome
		found := diff.ExplainWithin(&installed, s.packet, budget)
		if alone.Captured() && !found.Outcome.Dropped && found.Exhausted == "" &&
			found.Outcome.Undecided == "" && !d.sameCapture(alone, found.Outcome) {
			return fmt.Sprintf("%s (%s): with these parameters the packet %s; with the rules it %s",
				s.description, s.packet, d.predicate(alone), d.predicate(found.Outcome))
		}
	}
	return ""
}
