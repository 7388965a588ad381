package nftlist_test

import (
	"fmt"
	"reflect"
	"regexp"
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
func (r *ruleTable) add(base, rule string) {
	name := fmt.Sprintf("c%d", len(r.rules))
	r.rules[name] = rule
	fmt.Fprintf(&r.text, "\tchain %s {\n\t\t%s\n\t\t%s\n\t}\n", name, base, rule)
}

// ruleTableOf returns a table of a family with all test rules that are valid in such a table.
func ruleTableOf(family string) *ruleTable {
	r := &ruleTable{rules: map[string]string{}}
	r.text.WriteString("table " + family + " t {" + objectDeclarations)
	families, others := []string{family}, exactNotInet
	if family == "inet" {
		families, others = []string{"ip", "ip6"}, exactInet
	}
	for _, f := range families {
		fmt.Fprintf(&r.text, familySetDeclarations, formatArgumentsOf(f)...)
	}
	r.text.WriteString("\tchain target { }\n")
	for _, rule := range exactRules {
		r.add("", rule)
	}
	const atPrerouting = "type filter hook prerouting priority -150;"
	for _, rule := range others {
		r.add(atPrerouting, rule)
	}
	for _, f := range families {
		format := func(rule string) string {
			// Most rules use only some of the arguments.
			text, _, _ := strings.Cut(fmt.Sprintf(rule, formatArgumentsOf(f)...), "%!(EXTRA")
			return text
		}
		for _, rule := range exactAddressRules {
			r.add("", format(rule))
		}
		for _, rule := range exactNetworkRules[f] {
			r.add("", rule)
		}
		for _, rule := range exactAtPrerouting {
			r.add(atPrerouting, format(rule))
		}
		for _, rule := range exactTranslations {
			hook := "prerouting"
			if strings.Contains(rule, "snat") || strings.Contains(rule, "masquerade") {
				hook = "postrouting"
			}
			r.add("type nat hook "+hook+" priority 0;", format(rule))
		}
	}
	r.text.WriteString("}\n")
	return r
}

// TestListingsAreReadExactly loads each rule and compares the rule read from listings with the rule
// read from the kernel.
func TestListingsAreReadExactly(t *testing.T) {
	ns := newNamespace(t)
	for _, family := range []string{"ip", "ip6", "inet"} {
		t.Run(family, func(t *testing.T) {
			table := ruleTableOf(family)
			ns.load(t, table.text.String())
			ns.eachChain(t, everyForm, func(form string, want, got *rules.Chain) {
				rule := table.rules[want.Name]
				diff, ambiguous := differenceOf(want, got), isAmbiguous(family, form, rule)
				if (diff != "") != ambiguous {
					t.Errorf("%s: %s: difference %t, want %t (-kernel +listing):\n%s", form, rule,
						diff != "", ambiguous, diff)
				}
			})
		})
	}
}

// isAmbiguous reports whether a listing does not show the whole meaning of a rule (see the package
// doc). The rule that is read from the listing then contains a [rules.Unknown].
func isAmbiguous(family, form, rule string) bool {
	return strings.HasSuffix(form, "-n") && strings.Contains(rule, "oif exists") ||
		form != "nft -j" && strings.HasPrefix(rule, "meta l4proto udp tproxy") ||
		form == "nft -j" && strings.Contains(rule, "@expiring-") ||
		strings.HasPrefix(rule, "tcp option") && strings.Contains(rule, "missing") ||
		family != "ip" && isOptionCondition.MatchString(rule) ||
		family == "inet" && (strings.Contains(rule, "with tcp reset") ||
			rule == "meta l4proto icmp drop")
}

// isOptionCondition matches rules with a condition on an option of TCP and without one on IPv4.
var isOptionCondition = regexp.MustCompile("^(tcp dport 80 )?tcp option [a-z-]+ .*drop")

// eachChain calls do with each chain of the kernel and the same chain read from listings. If a
// chain is missing, it fails the test.
func (ns namespace) eachChain(
	t *testing.T, forms [][]string, do func(form string, want, got *rules.Chain),
) {
	t.Helper()
	inKernel, err := nft.ReadAll(ns.NS)
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
		for _, want := range inKernel.Tables {
			i := slices.IndexFunc(listing.Tables, func(table rules.Table) bool {
				return table.Name == want.Name && table.Family == want.Family
			})
			if i < 0 || len(listing.Tables[i].Chains) != len(want.Chains) {
				t.Fatalf("nft %v: the listing has no table %s with %d chains", form, want.Name,
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

// differenceOf describes the differences between the rules of two chains, except for differences
// that do not affect packets.
func differenceOf(want, got *rules.Chain) string {
	return cmp.Diff(want.Rules, got.Rules,
		cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(rules.Rule{}, "Handle", "Line", "Hits", "Comment"))
}
