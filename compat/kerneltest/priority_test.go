package kerneltest_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestOrderAtConntracksPriorityFollowsRegistration verifies that a chain at conntrack's priority
// runs before conntrack if the chain was registered last, and otherwise after conntrack. Therefore
// a list of the rules does not determine whether such a chain can set a zone.
func TestOrderAtConntracksPriorityFollowsRegistration(t *testing.T) {
	const (
		chooses = "table ip a {\nchain c {\ntype filter hook output priority -200;\n" +
			"ct zone set 5\n}\n}\n"
		tracks = "table ip b {\nchain c {\ntype filter hook output priority 5;\n" +
			"ct state new counter\n}\n}\n"
		counts = "table ip c {\nchain c {\ntype filter hook output priority 10;\n" +
			"ct zone 5 counter\nct zone 0 counter\n}\n}\n"
	)
	for _, tc := range []struct {
		name  string
		loads []string // in this order; tracks registers conntrack
		zone  int
	}{
		{"the chain is registered last", []string{tracks, chooses, counts}, 5},
		{"conntrack is registered last", []string{chooses, tracks, counts}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hits := loadAndSendUDP(t, tc.loads, "c")
			want := map[int]int{5: 0, 0: 1}[tc.zone]
			if hits[want].Hits.Packets == 0 || hits[1-want].Hits.Packets != 0 {
				t.Errorf("zone 5: %d packets, zone 0: %d; want them in zone %d",
					hits[0].Hits.Packets, hits[1].Hits.Packets, tc.zone)
			}
		})
	}
}

// TestOrderAtTheConfirmationFollowsRegistration verifies that a chain at the priority at which
// conntrack confirms connections runs before the confirmation if the chain was registered last, and
// otherwise after it.
func TestOrderAtTheConfirmationFollowsRegistration(t *testing.T) {
	const (
		reads = "table ip a {\nchain c {\ntype filter hook postrouting priority 2147483647;\n" +
			"ct state new ct status & confirmed != 0 counter\n" +
			"ct state new ct status & confirmed == 0 counter\n}\n}\n"
		tracks = "table ip b {\nchain c {\ntype filter hook output priority 5;\n" +
			"ct state new counter\n}\n}\n"
	)
	for _, tc := range []struct {
		name  string
		loads []string // in this order; if reads is first, it registers conntrack after its chain
		want  int      // the index of the rule that matches
	}{
		{"the chain is registered last", []string{tracks, reads}, 1},
		{"conntrack is registered last", []string{reads}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hits := loadAndSendUDP(t, tc.loads, "a")
			if hits[tc.want].Hits.Packets == 0 || hits[1-tc.want].Hits.Packets != 0 {
				t.Errorf("confirmed: %d packets, not confirmed: %d; want rule %d to match",
					hits[0].Hits.Packets, hits[1].Hits.Packets, tc.want+1)
			}
		})
	}
}

// loadAndSendUDP loads the texts in this order into a new namespace, sends a UDP packet, and
// returns the rules of the first chain of the table with their hits.
func loadAndSendUDP(t *testing.T, texts []string, table string) []rules.Rule {
	t.Helper()
	ns := netnstest.New(t)
	for _, text := range texts {
		istiotest.Run(t, ns, text, "nft", "-f", "-")
	}
	sendUDP(t, ns)
	live, err := compat.ReadLive(ns, compat.OriginNFT)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(live.Ruleset.Tables, func(t rules.Table) bool { return t.Name == table })
	return live.Ruleset.Tables[i].Chains[0].Rules
}
