package nftlist_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A ruleTable is a table with a separate chain for each rule.
type ruleTable struct {
	text strings.Builder
	// rules maps chains to the texts of their rules.
	rules map[string]string
}

// add adds a chain with one rule. base is the declaration of a base chain, or empty.
func (d *ruleTable) add(base, rule string) {
	name := fmt.Sprintf("c%d", len(d.rules))
	d.rules[name] = rule
	fmt.Fprintf(&d.text, "\tchain %s {\n\t\t%s\n\t\t%s\n\t}\n", name, base, rule)
}

// ruleTableOf returns a table of a family with all rules.
func ruleTableOf(family string) *ruleTable {
	d := &ruleTable{rules: map[string]string{}}
	d.text.WriteString("table " + family + " t {" + objectDeclarations)
	families, others := []string{family}, exactNotInet
	if family == "inet" {
		families, others = []string{"ip", "ip6"}, exactInet
	}
	for _, f := range families {
		fmt.Fprintf(&d.text, familySetDeclarations, addressesOf(f)...)
	}
	d.text.WriteString("\tchain below { }\n")
	for _, rule := range exactRules {
		d.add("", rule)
	}
	const atPrerouting = "type filter hook prerouting priority -150;"
	for _, rule := range others {
		d.add(atPrerouting, rule)
	}
	for _, f := range families {
		format := func(rule string) string {
			text, _, _ := strings.Cut(fmt.Sprintf(rule, addressesOf(f)...), "%!(EXTRA")
			return text
		}
		for _, rule := range exactRulesOf {
			d.add("", format(rule))
		}
		for _, rule := range exactNetworkRules[f] {
			d.add("", rule)
		}
		for _, rule := range exactAtPrerouting {
			d.add(atPrerouting, format(rule))
		}
		for _, rule := range exactTranslations {
			hook := "prerouting"
			if strings.Contains(rule, "snat") || strings.Contains(rule, "masquerade") {
				hook = "postrouting"
			}
			d.add("type nat hook "+hook+" priority 0;", format(rule))
		}
	}
	d.text.WriteString("}\n")
	return d
}

// TestListingsAreReadExactly loads each rule and compares the rule read from listings with the rule
// read from the kernel.
func TestListingsAreReadExactly(t *testing.T) {
	ns := newNamespace(t)
	for _, family := range []string{"ip", "ip6", "inet"} {
		t.Run(family, func(t *testing.T) {
			d := ruleTableOf(family)
			ns.load(t, d.text.String())
			ns.eachChain(t, everyForm, func(form string, want, got *rules.Chain) {
				rule := d.rules[want.Name]
				if diff := differenceOf(want, got); (diff == "") == isOmitted(family, form, rule) {
					t.Errorf("%s: %s: %s", form, rule, diff)
				}
			})
		})
	}
}

// isOmitted reports whether a listing omits a part of a rule, so that the rule is unknown.
func isOmitted(family, form, rule string) bool {
	return strings.HasSuffix(form, "-n") && strings.Contains(rule, "oif exists") ||
		form != "nft -j" && strings.HasPrefix(rule, "meta l4proto udp tproxy") ||
		family == "inet" &&
			(strings.Contains(rule, "with tcp reset") || rule == "meta l4proto icmp drop")
}

// eachChain calls do with each chain of the kernel and the same chain read from listings. A missing
// chain is an error.
func (ns namespace) eachChain(
	t *testing.T, forms [][]string, do func(form string, want, got *rules.Chain),
) {
	t.Helper()
	held, err := nft.ReadAll(ns.NS)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		text, err := ns.run(t, "", append(append([]string{ns.nft}, form...), "list", "ruleset")...)
		if err != nil {
			t.Fatal(err)
		}
		listing, err := nftlist.Parse("listing", strings.NewReader(text))
		if err != nil {
			t.Fatalf("nft %v: %v", form, err)
		}
		for _, want := range held.Tables {
			i := slices.IndexFunc(listing.Tables, func(table rules.Table) bool {
				return table.Name == want.Name && table.Family == want.Family
			})
			if i < 0 || len(listing.Tables[i].Chains) != len(want.Chains) {
				t.Fatalf("nft %v: table %s with its %d chains is not listed", form, want.Name,
					len(want.Chains))
			}
			for j := range want.Chains {
				got := listing.Tables[i].Chain(want.Chains[j].Name)
				if got == nil {
					t.Fatalf("nft %v: chain %s is not listed", form, want.Chains[j].Name)
				}
				do(fmt.Sprint("nft ", strings.Join(form, " ")), &want.Chains[j], got)
			}
		}
	}
}

// differenceOf describes the differences of two chains' rules, without differences that do not
// affect packets.
func differenceOf(want, got *rules.Chain) string {
	return cmp.Diff(want.Rules, got.Rules,
		cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(rules.Rule{}, "Handle", "Line", "Hits", "Comment"))
}
