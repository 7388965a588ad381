package kerneltest_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestPacketsArriveOnLoopbackWithTheTranslatedSource verifies that a packet arrives on lo with its
// translated source, and that no decision relies on the original source.
func TestPacketsArriveOnLoopbackWithTheTranslatedSource(t *testing.T) {
	const translating = `table ip a {
		chain p { type filter hook prerouting priority -150; ip saddr 127.0.0.9 counter drop
		}
		chain n { type nat hook postrouting priority 100; oif "lo" counter snat to 127.0.0.9
		}
	}`
	read := func(text string) (diff.Side, uint64) {
		ns := netnstest.New(t)
		istiotest.Run(t, ns, text, "nft", "-f", "-")
		sendUDP(t, ns)
		live, err := compat.ReadLive(ns, compat.OriginNFT)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{
			Ruleset: live.Ruleset,
		}, live.Ruleset.Tables[0].Chains[0].Rules[0].Hits.Packets
	}
	left, translated := read(translating)
	right, untranslated := read(strings.Replace(translating, "snat to 127.0.0.9", "accept", 1))
	if translated == 0 || untranslated != 0 {
		t.Errorf("the kernel: %d packets from 127.0.0.9 with the translation, %d without it; want "+
			"packets only with it", translated, untranslated)
	}
	if r := diff.Decide(left, right, diff.Options{}); r.StrictVerdict() == diff.Equivalent {
		t.Errorf("rulesets with and without the translation: %s, want another verdict",
			r.StrictVerdict())
	}
	if r := diff.Decide(left, left, diff.Options{}); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("a ruleset compared with itself: %s, want %s", r.StrictVerdict(), diff.Equivalent)
	}
}

// TestLaterPacketsHaveTheTranslatedSource verifies that chains after the priority of NAT see the
// translated source of later packets of a connection (NATMappingPersists), and that package diff
// does not assume the original source in these chains.
func TestLaterPacketsHaveTheTranslatedSource(t *testing.T) {
	const reads = "ip saddr 127.0.0.5 meta l4proto udp counter meta mark set 7\n"
	rulesAt := func(priority string) string {
		return "table ip a {\nchain reads {\ntype filter hook postrouting priority " + priority +
			";\n" + reads + "}\n}\n"
	}
	const translates = "table ip b {\nchain translates {\n" +
		"type nat hook postrouting priority 100;\nsnat to 127.0.0.5\n}\n}\n"
	sides := map[string]diff.Side{}
	for priority, hits := range map[string]uint64{"50": 0, "150": 2} {
		ns := netnstest.New(t)
		istiotest.Run(t, ns, rulesAt(priority)+translates, "nft", "-f", "-")
		_ = listenUDP(t, ns, "127.0.0.1:9")
		from := listenUDP(t, ns, "127.0.0.1:4000")
		for range 2 {
			if _, err := from.WriteTo([]byte("x"), &net.UDPAddr{
				IP: net.IPv4(127, 0, 0, 1), Port: 9,
			}); err != nil {
				t.Fatal(err)
			}
		}
		live := readLive(t, ns)
		a := slices.IndexFunc(live.Tables, func(t rules.Table) bool { return t.Name == "a" })
		if got := live.Tables[a].Chains[0].Rules[0].Hits.Packets; got != hits {
			t.Errorf("the kernel: %d packets from 127.0.0.5 at priority %s, want %d", got, priority,
				hits)
		}
		sides[priority] = diff.Side{Ruleset: *live}
		const later = "out udp 127.0.0.1:4000 > 127.0.0.1:9 status confirmed,snat"
		got := diff.Explain(live, parsed(t, later)).Outcome
		if got.Undecided == "" && got.UnknownMarks == "" && (got.Mark == 7) != (hits > 0) {
			t.Errorf("the model at priority %s: %s, want mark 7: %t", priority, got, hits > 0)
		}
	}
	r := diff.Decide(sides["50"], sides["150"], diff.Options{})
	if r.StrictVerdict() == diff.Equivalent {
		t.Errorf("the rules before and after the translation: %s, want another verdict",
			r.StrictVerdict())
	}
}
