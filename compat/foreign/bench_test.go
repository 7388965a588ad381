package foreign_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// BenchmarkDecide compares the time that diff.Bypass and diff.Decide take to decide the effect of
// foreign rules.
func BenchmarkDecide(b *testing.B) {
	for name, text := range map[string]string{
		"notrack":  "*raw\n-A OUTPUT -p tcp --dport 8080 -j NOTRACK\n-A PREROUTING -p tcp --sport 8080 -j NOTRACK\nCOMMIT\n",
		"firewall": "*filter\n-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n",
		"queue":    "*filter\n-A OUTPUT -p tcp --dport 8080 -m conntrack --ctstate ESTABLISHED -j NFQUEUE\nCOMMIT\n",
	} {
		desired := captureAll()
		live := desired
		others, err := save.Parse(rules.IPv4, name, strings.NewReader(text))
		if err != nil {
			b.Fatal(err)
		}
		live.Tables = append(others, desired.Tables...)
		b.Run(name+" by Bypass", func(b *testing.B) {
			for b.Loop() {
				if r := diff.Bypass(desired, live,
					diff.Options{MaxClasses: 3}); (len(r.Classes) > 0) != (name == "notrack") {
					b.Fatalf("%d classes bypass the proxy, want some only with notrack", len(r.Classes))
				}
			}
		})
		b.Run(name+" by Decide", func(b *testing.B) {
			for b.Loop() {
				diff.Decide(diff.Side{Ruleset: desired}, diff.Side{Ruleset: live},
					diff.Options{MaxClasses: 3})
			}
		})
	}
}
