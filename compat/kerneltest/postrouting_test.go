package kerneltest_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestPacketsArriveOnLoopbackWithTheTranslatedSource verifies that a packet arrives on lo with its
// translated source, and that no decision relies on the original source.
func TestPacketsArriveOnLoopbackWithTheTranslatedSource(t *testing.T) {
	const with = `table ip a {
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
	left, translated := read(with)
	right, untranslated := read(strings.Replace(with, "snat to 127.0.0.9", "accept", 1))
	if translated == 0 || untranslated != 0 {
		t.Errorf("the kernel: %d packets from the new source, %d without a translation", translated,
			untranslated)
	}
	if r := diff.Decide(left, right, diff.Options{}); r.Verdict(true) == diff.Equivalent {
		t.Error("rulesets with and without the translation are equivalent")
	}
	if r := diff.Decide(left, left, diff.Options{}); r.Verdict(true) != diff.Equivalent {
		t.Errorf("a ruleset and itself: %s", r.Verdict(true))
	}
}
