package kerneltest_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
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

// TestOrderAtNATsPriorityFollowsRegistration verifies that a chain at NAT's priority runs before
// the NAT chains if it was registered after the first of them, and otherwise after them. With this
// order, the model predicts the rule that matches.
func TestOrderAtNATsPriorityFollowsRegistration(t *testing.T) {
	const (
		reads = "table ip a {\nchain c {\ntype filter hook output priority -100;\n" +
			"udp dport 9 ip daddr 127.0.0.1 counter\nudp dport 9 ip daddr 127.0.0.2 counter\n}\n}\n"
		readsSource = "table ip a {\nchain c {\ntype filter hook postrouting priority 100;\n" +
			"udp dport 9 ip saddr 127.0.0.1 counter\nudp dport 9 ip saddr 127.0.0.2 counter\n}\n}\n"
		idle = "table ip idle {\nchain c {\ntype nat hook output priority -90;\n}\n}\n"
		dnat = "table ip b {\nchain c {\ntype nat hook output priority -100;\n" +
			"udp dport 9 ct state new dnat to 127.0.0.2\n}\n}\n"
		snat = "table ip b {\nchain c {\ntype nat hook postrouting priority 100;\n" +
			"udp dport 9 ct state new snat to 127.0.0.2\n}\n}\n"
	)
	sent := in("", rules.UDP, "127.0.0.1:1", "127.0.0.1:9")
	sent.Hook, sent.OutInterface, sent.Owner = rules.Output, "lo", &rules.Owner{}
	for _, tc := range []struct {
		name  string
		loads []string
		want  int // the index of the rule that matches
	}{
		{"NAT is registered last", []string{reads, dnat}, 1},
		{"the chain is registered last", []string{dnat, reads}, 0},
		{"NAT was registered first by a chain without rules", []string{idle, reads, dnat}, 0},
		{"NAT is registered last, by a chain without rules", []string{reads, idle, dnat}, 1},
		{"NAT is registered last, at postrouting", []string{readsSource, snat}, 1},
		{"the chain is registered last, at postrouting", []string{snat, readsSource}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			live := loadSendUDPAndRead(t, tc.loads)
			hits := firstChain(live, "a")
			if hits[tc.want].Hits.Packets == 0 || hits[1-tc.want].Hits.Packets != 0 {
				t.Errorf("the original address: %d packets, the translated one: %d; want rule %d to match",
					hits[0].Hits.Packets, hits[1].Hits.Packets, tc.want+1)
			}
			// Up to Linux 7.2 the kernel does not report where NAT runs.
			if len(live.Ambiguous) > 0 {
				live.Ruleset.Tables[tableIndex(live, "a")].Chains[0].Base.Order = 10*tc.want - 1
			}
			var predicted []int
			for _, pass := range diff.Explain(&live.Ruleset, sent).Passes {
				for _, s := range pass.Steps {
					if s.Table.Name == "a" {
						predicted = append(predicted, s.Index)
					}
				}
			}
			if !slices.Equal(predicted, []int{tc.want}) {
				t.Errorf("the model predicts the rules with the indexes %v, want %d", predicted, tc.want)
			}
		})
	}
}

// loadAndSendUDP loads the texts in this order into a new namespace, sends a UDP packet, and
// returns the rules of the first chain of the table with their hits.
func loadAndSendUDP(t *testing.T, texts []string, table string) []rules.Rule {
	t.Helper()
	return firstChain(loadSendUDPAndRead(t, texts), table)
}

// firstChain returns the rules of the first chain of the table.
func firstChain(live compat.Live, table string) []rules.Rule {
	return live.Ruleset.Tables[tableIndex(live, table)].Chains[0].Rules
}

func tableIndex(live compat.Live, name string) int {
	return slices.IndexFunc(live.Ruleset.Tables, func(t rules.Table) bool { return t.Name == name })
}

// loadSendUDPAndRead loads the texts in this order into a new namespace, sends a UDP packet, and
// reads the namespace.
func loadSendUDPAndRead(t *testing.T, texts []string) compat.Live {
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
	return live
}
