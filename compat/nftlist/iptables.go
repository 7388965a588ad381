package nftlist

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// undecidedTranslations returns a sentence about each table that may belong to iptables-nft. In
// text, nft translates the matches and targets of iptables. It may omit parts that it cannot
// translate: nft 1.0.6 omits targets of ip6tables. Some translations are not exact, such as the
// translation of a negated owner. JSON contains the names of matches and targets instead of
// translations.
func undecidedTranslations(tables []rules.Table) []string {
	var sentences []string
	for _, t := range tables {
		if isIPTables(&t) {
			sentences = append(sentences, fmt.Sprintf("nft may not list everything that "+
				"iptables-nft puts into table %s %s: compare the output of iptables-save",
				t.Family, t.Name))
		}
	}
	return sentences
}

// isIPTables reports whether a table has rules, and has the name and a chain of an iptables table.
func isIPTables(t *rules.Table) bool {
	tables := []string{"filter", "nat", "mangle", "raw", "security"}
	return t.Family != rules.Inet && slices.Contains(tables, t.Name) &&
		slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
			return slices.Contains(xt.BuiltInChains[:], c.Name)
		}) &&
		slices.ContainsFunc(t.Chains, func(c rules.Chain) bool { return len(c.Rules) > 0 })
}
