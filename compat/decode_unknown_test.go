package compat_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestUnknownRulesEqualOnlyThemselves compares rules that the model cannot express, read from two
// namespaces. Each rule equals itself, whatever state the kernel adds to it, and differs from all
// others.
func TestUnknownRulesEqualOnlyThemselves(t *testing.T) {
	list := []string{
		"-m length --length 100", "-m length --length 101", "-m length ! --length 100",
		"-m statistic --mode nth --every 3 --packet 0",
		"-m statistic --mode nth --every 3 --packet 1",
		"-m statistic --mode random --probability 0.5",
		"-m quota --quota 1000000", "-m quota --quota 1000001",
		"-m recent --name a --set", "-m recent --name b --set", "-m recent --name a --rcheck",
		"-m hashlimit --hashlimit-upto 5/sec --hashlimit-name a",
		"-m hashlimit --hashlimit-upto 6/sec --hashlimit-name b",
		"-m connlimit --connlimit-above 3", "-m connlimit --connlimit-above 4",
		"-m string --algo bm --string abc", "-m string --algo bm --string abd",
		"-m string --algo kmp --string abc",
		"-m time --timestart 01:00", "-m time --timestart 02:00",
		"-m conntrack --ctstate NEW --ctdir ORIGINAL", "-m conntrack --ctstate NEW --ctdir REPLY",
		"-m socket", "-m socket --nowildcard",
		"-j DSCP --set-dscp 1", "-j DSCP --set-dscp 2",
		"-j CLASSIFY --set-class 1:1", "-j CLASSIFY --set-class 1:2",
		"-j NFQUEUE --queue-num 1", "-j NFQUEUE --queue-num 2",
		"-j NFQUEUE --queue-num 1 --queue-bypass",
		"-j CONNMARK --save-mark --left-shift-mark 1",
		"-j CONNMARK --save-mark --right-shift-mark 1",
	}
	for variant, read := range tableReaders() {
		for _, f := range istiotest.Families {
			var cases []optionCase
			for _, rule := range list {
				cases = append(cases, optionCase{table: "mangle", rule: rule})
			}
			var found [2][]rules.Unknown
			for side := range found {
				ns := netnstest.New(t)
				istiotest.Restore(t, ns, variant, f, optionTables(f, cases))
				tables := read(ns)
				n := slices.IndexFunc(tables, func(table rules.Table) bool {
					return table.Family == f && table.Name == "mangle"
				})
				for i, rule := range list {
					r := tables[n].Chain(optionChain(i)).Rules[0]
					found[side] = append(found[side], onlyUnknown(t, rule, r))
				}
			}
			for i, a := range found[0] {
				for j, b := range found[1] {
					if same := a == b; same != (i == j) {
						t.Errorf("%v %s: %s equals %s: %t, want %t:\n%#v\n%#v", variant, f, list[i],
							list[j], same, i == j, a, b)
					}
				}
			}
		}
	}
}

// onlyUnknown returns the only unknown match or action of a rule.
func onlyUnknown(t *testing.T, text string, r rules.Rule) rules.Unknown {
	t.Helper()
	var found []rules.Unknown
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok {
			found = append(found, u)
		}
	}
	for _, a := range r.Actions {
		if u, ok := a.(rules.Unknown); ok {
			found = append(found, u)
		}
	}
	if len(found) != 1 || found[0].Data == rules.NoData {
		t.Fatalf("%s: unknown matches and actions %v, want one with data", text, found)
	}
	return found[0]
}
