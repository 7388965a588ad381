package compat_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestSavedSourceNATEqualsTheKernels loads rules that translate the source to an address or port
// that the kernel selects, and compares the output of iptables-save with the rules in the kernel.
func TestSavedSourceNATEqualsTheKernels(t *testing.T) {
	targets := map[rules.Family][]string{
		rules.IPv4: {
			"-j MASQUERADE", "-j MASQUERADE --random-fully", "-j MASQUERADE --random",
			"-p tcp -j MASQUERADE --to-ports 1000-2000",
			"-p udp -j MASQUERADE --to-ports 5 --random",
			"-j SNAT --to-source 10.0.0.1-10.0.0.5", "-j SNAT --to-source 10.0.0.1 --random-fully",
			"-p tcp -j SNAT --to-source 10.0.0.1:80-90", "-p udp -j SNAT --to-source :5",
			"-p udp -j MASQUERADE --to-ports 5",
			"-p tcp -j SNAT --to-source 10.0.0.1-10.0.0.5:80 --random --persistent",
		},
		rules.IPv6: {
			"-j MASQUERADE", "-j MASQUERADE --random-fully",
			"-p tcp -j MASQUERADE --to-ports 1000-2000",
			"-j SNAT --to-source fd00::1-fd00::5",
			"-p tcp -j SNAT --to-source [fd00::1]:80",
			"-j SNAT --to-source fd00::1:80 --random",
		},
	}
	for f, list := range targets {
		saved := map[istiotest.Variant][]string{}
		live := map[istiotest.Variant][]diff.Side{}
		for _, target := range list {
			text := "*nat\n:POSTROUTING ACCEPT [0:0]\n[0:0] -A POSTROUTING " + target + "\nCOMMIT\n"
			for variant, read := range tableReaders() {
				ns := netnstest.New(t)
				istiotest.Restore(t, ns, variant, f, text)
				saved[variant] = append(saved[variant], istiotest.Save(t, ns, variant, f))
				live[variant] = append(live[variant], diff.Side{Ruleset: rules.Ruleset{Tables: read(ns)}})
			}
		}
		for savedBy, texts := range saved {
			for i, text := range texts {
				tables, err := save.Parse(f, "text", strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				for loadedBy, sides := range live {
					for j, side := range sides {
						result := diff.Decide(diff.Side{Ruleset: rules.Ruleset{Tables: tables}},
							side, diff.Options{Families: []rules.Family{f}})
						got := result.StrictVerdict()
						if (got == diff.Equivalent) != (i == j) {
							t.Errorf("saved rule %s (%v) and loaded rule %s (%v): %s, want equivalent: %t",
								list[i], savedBy, list[j], loadedBy, got, i == j)
						}
					}
				}
			}
		}
	}
}
