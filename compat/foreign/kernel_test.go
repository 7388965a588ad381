package foreign_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A setup changes the rules, routes or interfaces of the network's pod, according to the argument.
type setup func(t *testing.T, network *testbed.Network, argument string)

func legacy(t *testing.T, network *testbed.Network, text string) {
	istiotest.Restore(t, network.Pod, istiotest.Legacy, rules.IPv4, text)
}

func iptablesNFT(t *testing.T, network *testbed.Network, text string) {
	istiotest.Restore(t, network.Pod, istiotest.NFT, rules.IPv4, text)
}

func nftables(t *testing.T, network *testbed.Network, text string) {
	istiotest.Run(t, network.Pod, text, "nft", "-f", "-")
}

// nameInterfaces renames the loopback interface and eth0. names contains the two new names,
// separated by a space.
func nameInterfaces(t *testing.T, network *testbed.Network, names string) {
	t.Helper()
	loopback, device, _ := strings.Cut(names, " ")
	istiotest.Run(t, network.Pod, "", "ip", "link", "set", "lo", "name", loopback)
	if device != "eth0" {
		istiotest.Run(t, network.Pod, "", "ip", "link", "set", "eth0", "name", device)
	}
}

// routeOverLoopback loads rules with nft, and routes packets to 10.9.9.9 over lo unless they have
// the mark 7.
func routeOverLoopback(t *testing.T, network *testbed.Network, text string) {
	t.Helper()
	nftables(t, network, text)
	istiotest.Run(t, network.Pod, "", "ip", "rule", "add", "fwmark", "7", "lookup", "main", "priority", "10")
	istiotest.Run(t, network.Pod, "", "ip", "rule", "add", "to", "10.9.9.9", "lookup", "98", "priority", "20")
	istiotest.Run(t, network.Pod, "", "ip", "route", "add", "default", "dev", "lo", "table", "98")
}

// routeMarkedOverLoopback loads rules with nft, and routes packets with the mark 7 over lo, as a
// rules.PolicyRoute does.
func routeMarkedOverLoopback(t *testing.T, network *testbed.Network, text string) {
	t.Helper()
	nftables(t, network, text)
	istiotest.Run(t, network.Pod, "", "ip", "rule", "add", "fwmark", "7", "lookup", "98", "priority", "20")
	istiotest.Run(t, network.Pod, "", "ip", "route", "add", "local", "default", "dev", "lo", "table", "98")
}

// routeByPolicyRule loads rules with nft, and routes packets to 10.9.9.9 by a table other than
// main.
func routeByPolicyRule(t *testing.T, network *testbed.Network, text string) {
	t.Helper()
	nftables(t, network, text)
	istiotest.Run(t, network.Pod, "", "ip", "rule", "add", "to", "10.9.9.9", "lookup", "98", "priority", "20")
	istiotest.Run(t, network.Pod, "", "ip", "route", "add", "default", "dev", "eth0", "table", "98")
}

// call is the tested connection to an address outside the node. The ruleset captures it, and the
// foreign rules match its packets.
var call = testbed.Call{
	Network: "tcp", Owner: testbed.ApplicationOwner, To: netip.MustParseAddrPort("10.9.9.9:8080"),
	Timeout: noAnswerTimeout,
}

// answerTimeout is the timeout of a call that must be answered, and noAnswerTimeout of other calls.
const (
	answerTimeout   = 20 * time.Second
	noAnswerTimeout = time.Second
)

// TestEffectAgreesWithARealConnection compares, for foreign rules of each backend, the listener
// that answers a real connection with the decision. If Sluice's rules are in iptables-legacy, the
// test only verifies the decision.
func TestEffectAgreesWithARealConnection(t *testing.T) {
	const proxy = testbed.Outbound
	for _, row := range []struct {
		name    string
		load    setup
		rules   string // the argument of load
		mark    uint32 // of the calling socket
		verdict foreign.Verdict
		// contains is a part of the messages. owner is the owner of the rule that causes the
		// bypass.
		contains   string
		owner      foreign.Owner
		answeredBy testbed.Name // the listener that answers the call, empty for none
	}{
		{
			name: "no foreign rules", load: nftables, verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "legacy NOTRACK", load: legacy,
			rules:   "*raw\n-A OUTPUT -p tcp --dport 8080 -j NOTRACK\n-A PREROUTING -p tcp --sport 8080 -j NOTRACK\nCOMMIT\n",
			verdict: foreign.Bypassed, contains: "8080", owner: foreign.OwnerLegacy,
			answeredBy: testbed.Outside,
		},
		{
			name: "legacy CT --notrack", load: legacy,
			rules:   "*raw\n-A OUTPUT -p tcp --dport 8080 -j CT --notrack\n-A PREROUTING -p tcp --sport 8080 -j CT --notrack\nCOMMIT\n",
			verdict: foreign.Bypassed, owner: foreign.OwnerLegacy, answeredBy: testbed.Outside,
		},
		{
			name: "NOTRACK of iptables-nft", load: iptablesNFT,
			rules:   "*raw\n-A OUTPUT -p tcp --dport 8080 -j NOTRACK\n-A PREROUTING -p tcp --sport 8080 -j NOTRACK\nCOMMIT\n",
			verdict: foreign.Bypassed, owner: foreign.OwnerIPTablesNFT, answeredBy: testbed.Outside,
		},
		{
			name: "notrack of nft", load: nftables, rules: `table ip own {
				chain out { type filter hook output priority -300; tcp dport 8080 notrack; }
				chain in { type filter hook prerouting priority -300; tcp sport 8080 notrack; }
			}`,
			verdict: foreign.Bypassed, owner: foreign.OwnerNFT, answeredBy: testbed.Outside,
		},
		{
			name: "notrack of nft with names of iptables-legacy and Sluice", load: nftables, rules: `table ip own {
				comment "iptables-legacy"
				chain SLUICE_OUT { type filter hook output priority -300; tcp dport 8080 notrack; }
				chain SLUICE_IN { type filter hook prerouting priority -300; tcp sport 8080 notrack; }
			}`,
			verdict: foreign.Bypassed, contains: "rule of nft: ip own SLUICE_OUT #1",
			owner: foreign.OwnerNFT, answeredBy: testbed.Outside,
		},
		{
			name: "notrack of nft with the comment iptables-nft", load: nftables, rules: `table ip own {
				comment "iptables-nft"
				chain out { type filter hook output priority -300; tcp dport 8080 notrack; }
				chain in { type filter hook prerouting priority -300; tcp sport 8080 notrack; }
			}`,
			verdict: foreign.Bypassed, owner: foreign.OwnerNFT, answeredBy: testbed.Outside,
		},
		{
			name: "destination NAT before Sluice's rules", load: nftables, rules: `table ip own {
				chain out { type nat hook output priority -150; tcp dport 8080 dnat to 10.9.9.8; }
			}`,
			verdict: foreign.Bypassed, contains: "10.9.9.8", owner: foreign.OwnerNFT,
			answeredBy: testbed.Outside,
		},
		{
			name: "an accept before Sluice's rules ends only its own chain", load: nftables, rules: `table ip own {
				chain out { type nat hook output priority -150; tcp dport 8080 accept; }
			}`,
			verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "NAT of iptables-legacy after Sluice's rules", load: legacy,
			rules:   "*nat\n-A OUTPUT -p tcp -j REDIRECT --to-ports 9\n-A PREROUTING -p tcp ! --dport 15008 -j REDIRECT --to-ports 9\nCOMMIT\n",
			verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "a firewall that drops", load: legacy,
			rules:   "*filter\n-A OUTPUT -p tcp --dport 8080 -j DROP\nCOMMIT\n*raw\n-A OUTPUT -p tcp --dport 8080 -j DROP\nCOMMIT\n",
			verdict: foreign.None,
		},
		{
			name: "a firewall that accepts known connections", load: iptablesNFT,
			rules:   "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n",
			verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "NOTRACK of traffic that is not captured", load: legacy,
			rules:   "*raw\n-A OUTPUT -p udp --dport 5353 -j NOTRACK\nCOMMIT\n",
			verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "notrack after a match that the model cannot express", load: nftables,
			rules: `table ip own {
				chain out { type filter hook output priority -300; tcp dport 8080 ip dscp 5 notrack; }
			}`,
			verdict: foreign.Unknown, contains: "depends on", answeredBy: proxy,
		},
		{
			// The kernel deletes the element without an event.
			name: "destination NAT of packets whose destination is not in a set, from which it will expire",
			load: nftables, rules: `table ip own {
				set s { type ipv4_addr; flags timeout; elements = { 10.9.9.9 timeout 1h }; }
				chain out { type nat hook output priority -150;
					tcp dport 8080 ip daddr 10.9.9.9 ip daddr != @s dnat to 10.9.9.8; }
			}`,
			verdict: foreign.Bypassed, contains: "ip daddr != @s", owner: foreign.OwnerNFT, answeredBy: proxy,
		},
		{
			name: "a chain at ingress of a device", load: nftables, rules: `table netdev own {
				chain in { type filter hook ingress device "lo" priority 0; meta mark set 7; }
			}`,
			verdict: foreign.Unknown, contains: "table netdev own chain in", answeredBy: proxy,
		},
		{
			name: "packets that are routed over lo, and then by their mark", load: routeOverLoopback,
			rules:   `table inet own { chain out { type route hook output priority 0; tcp dport 8080 meta mark set 7; }; }`,
			verdict: foreign.Unknown, contains: "may route them to another host: nft: inet own out #1",
			answeredBy: testbed.Outside,
		},
		{
			name: "packets that are routed over lo, and then by their new destination", load: routeOverLoopback,
			rules:   `table inet own { chain out { type nat hook output priority 0; ip daddr 10.9.9.9 tcp dport 9999 dnat ip to 10.9.9.8; }; }`,
			verdict: foreign.Unknown, contains: "may route them to another host: nft: inet own out #1",
		},
		{
			name: "packets that are routed over lo", load: routeOverLoopback,
			rules:   `table inet own { chain out { type filter hook output priority 0; tcp dport 8080 meta mark set 7; }; }`,
			verdict: foreign.None,
		},
		{
			name: "packets that are routed over lo by the mark of their socket, and then by another mark",
			load: routeMarkedOverLoopback, mark: 7,
			rules:   `table inet own { chain out { type route hook output priority 0; meta mark 7 meta mark set 0; }; }`,
			verdict: foreign.Unknown, contains: "may route them to another host: nft: inet own out #1",
			answeredBy: testbed.Outside,
		},
		{
			name: "packets that are routed over lo by the mark of their socket",
			load: routeMarkedOverLoopback, mark: 7,
			rules:   `table inet own { chain out { type filter hook output priority 0; meta mark 7 meta mark set 0; }; }`,
			verdict: foreign.None,
		},
		{
			name: "packets that a policy rule routes by eth0", load: routeByPolicyRule,
			rules:   `table inet own { chain out { type route hook output priority 0; tcp dport 8080 meta mark set 7; }; }`,
			verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "marks without routes", load: nftables,
			rules:   `table inet own { chain out { type route hook output priority 0; tcp dport 8080 meta mark set 7; }; }`,
			verdict: foreign.None, answeredBy: proxy,
		},
		{
			name: "eth0 is renamed to lo", load: nameInterfaces, rules: "loop lo",
			verdict: foreign.Unknown, contains: `the loopback interface has the name "loop"`,
			answeredBy: testbed.Outside,
		},
		{
			name: "the loopback interface is renamed", load: nameInterfaces, rules: "loop eth0",
			verdict: foreign.Unknown, contains: `the loopback interface has the name "loop"`,
			answeredBy: proxy,
		},
	} {
		for _, backendName := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
			t.Run(row.name+"/"+string(backendName), func(t *testing.T) {
				network, desired := redirectedPod(t, backendName)
				if row.rules != "" {
					row.load(t, network, row.rules)
				}
				if backendName == compat.BackendNFT {
					c := call
					if row.answeredBy != "" {
						c.Timeout = answerTimeout
					}
					if c.Mark = row.mark; c.Mark != 0 { // the kernel finds no source address on lo
						c.Local = netip.AddrPortFrom(testbed.PodIP4, 0)
					}
					answer, err := network.Dial(c)
					if err != nil {
						t.Fatal(err)
					}
					if answer.By != row.answeredBy {
						t.Errorf("the call was answered by %q, want %q", answer.By, row.answeredBy)
					}
				}
				found := checkEffect(t, network, desired, row.verdict, row.contains)
				if len(found.Bypasses) > 0 && found.Bypasses[0].Owner != row.owner {
					t.Errorf("owner %q, want %q", found.Bypasses[0].Owner, row.owner)
				}
			})
		}
	}
}

// TestLegacyChainsWithSluicesPrefixAreForeign covers chains of iptables-legacy whose names have the
// prefix of Sluice's chains, in a pod with Sluice's table in nf_tables.
func TestLegacyChainsWithSluicesPrefixAreForeign(t *testing.T) {
	for _, row := range []struct {
		name     string
		load     setup
		rules    string // of iptables-legacy
		verdict  foreign.Verdict
		contains string
	}{
		{
			name: "NOTRACK", load: nftables,
			rules: "*raw\n:SLUICE_X - [0:0]\n-A SLUICE_X -p tcp --dport 8080 -j NOTRACK\n-A OUTPUT -j SLUICE_X\n" +
				"-A SLUICE_X -p tcp --sport 8080 -j NOTRACK\n-A PREROUTING -j SLUICE_X\nCOMMIT\n",
			verdict: foreign.Bypassed, contains: "rule of iptables-legacy: ip raw SLUICE_X #1",
		},
		{
			name: "packets that are routed over lo, and then by their mark", load: routeOverLoopback,
			rules: "*mangle\n:SLUICE_X - [0:0]\n-A SLUICE_X -p tcp --dport 8080 -j MARK --set-mark 7\n" +
				"-A OUTPUT -j SLUICE_X\nCOMMIT\n",
			verdict: foreign.Unknown, contains: "iptables-legacy: ip mangle SLUICE_X #1",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := redirectedPod(t, compat.BackendNFT)
			row.load(t, network, "")
			legacy(t, network, row.rules)
			c := call
			c.Timeout = answerTimeout
			if answer, err := network.Dial(c); err != nil || answer.By != testbed.Outside {
				t.Errorf("the call was answered by %q (error %v), want %q", answer.By, err, testbed.Outside)
			}
			checkEffect(t, network, desired, row.verdict, row.contains)
		})
	}
}

// redirectedPod returns a network in which the pod has a proxy and captures all traffic, and the
// ruleset that the backend has installed in the pod.
func redirectedPod(t testing.TB, backendName compat.BackendName) (*testbed.Network, rules.Ruleset) {
	t.Helper()
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	if err := network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner}); err != nil {
		t.Fatal(err)
	}
	desired := captureAll()
	b, err := compat.Choose(backendName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Apply(network.Pod, desired, compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return network, desired
}

// captureAll returns a ruleset that captures all traffic that can be captured.
func captureAll() rules.Ruleset {
	r := rules.DefaultRedirect()
	r.IPv6 = true
	r.OutboundCIDRs.All, r.InboundPorts.All = true, true
	return rules.MustCompile(r)
}

// TestSnapshotIsValidUntilALegacyTableChanges covers changes of iptables-legacy tables. One of them
// keeps the size of the table: it replaces a rule with a rule of the same size.
func TestSnapshotIsValidUntilALegacyTableChanges(t *testing.T) {
	for _, backendName := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		t.Run(string(backendName), func(t *testing.T) {
			network, desired := redirectedPod(t, backendName)
			found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			for _, step := range []struct {
				rules string
				valid bool
			}{
				{"", true},
				{
					"*raw\n-A OUTPUT -p udp --dport 8080 -m limit --limit 1/s -j NOTRACK\nCOMMIT\n",
					false,
				},
				{"", true},
				{
					"*raw\n-D OUTPUT 1\n-A OUTPUT -p udp --dport 8081 -m limit --limit 1/s -j NOTRACK\nCOMMIT\n",
					false,
				},
				{"*raw\n-P OUTPUT DROP\nCOMMIT\n", false},
			} {
				if step.rules != "" {
					istiotest.Run(t, network.Pod, step.rules, "iptables-legacy-restore", "--noflush")
				}
				if _, err := network.Dial(call); err != nil { // this changes the counters
					t.Fatal(err)
				}
				if valid := found.IsValid(network.Pod); valid != step.valid {
					t.Fatalf("after %q: valid %t, want %t", step.rules, valid, step.valid)
				}
				found = foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			}
		})
	}
}

// TestSnapshotIsValidUntilARouteOverLoopbackIsAdded tests a change for which the agent gets no
// event, and that matters because a foreign rule translates destinations.
func TestSnapshotIsValidUntilARouteOverLoopbackIsAdded(t *testing.T) {
	network, desired := redirectedPod(t, compat.BackendNFT)
	nftables(t, network,
		`table inet own { chain out { type nat hook output priority 0; tcp dport 9999 dnat ip to 10.9.9.9; }; }`)
	found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
	if !found.IsValid(network.Pod) {
		t.Fatal("the snapshot is not valid before the change")
	}
	istiotest.Run(t, network.Pod, "", "ip", "route", "add", "10.9.9.8", "dev", "lo")
	if found.IsValid(network.Pod) {
		t.Error("the snapshot is valid after the change")
	}
}

// TestSnapshotIsValidUntilTheLoopbackInterfaceIsRenamed tests a change for which the agent gets no
// event.
func TestSnapshotIsValidUntilTheLoopbackInterfaceIsRenamed(t *testing.T) {
	network, desired := redirectedPod(t, compat.BackendNFT)
	found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
	if !found.IsValid(network.Pod) {
		t.Fatal("the snapshot is not valid before the change")
	}
	nameInterfaces(t, network, "loop lo")
	if found.IsValid(network.Pod) {
		t.Error("the snapshot is still valid after the change")
	}
}

// TestSnapshotIsNotValidWithATableThatAProcessOwns inspects tables that the kernel deletes without
// an event when their owner ends.
func TestSnapshotIsNotValidWithATableThatAProcessOwns(t *testing.T) {
	for _, family := range []string{"inet", "bridge"} {
		network, desired := redirectedPod(t, compat.BackendNFT)
		netnstest.OwnTable(t, network.Pod, "table "+family+" own { flags owner; }")
		if found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget); found.IsValid(network.Pod) {
			t.Errorf("the snapshot is valid while a process owns a table of family %s", family)
		}
	}
}

// TestEffectOfUnreadableRulesHasLists verifies that the effect of rules that cannot be read
// contains lists in JSON, as the schema of rules check requires.
func TestEffectOfUnreadableRulesHasLists(t *testing.T) {
	ns := netnstest.New(t)
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	found := foreign.Inspect(ns, captureAll(), diff.DefaultBudget)
	text, err := json.Marshal(found.Effect)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"bypasses":[],"unknown":["foreign rules cannot be read: `
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("got %s, want it to begin with %s", text, want)
	}
}

// TestInspectAsInstalledUsesTheDesiredRules inspects a namespace with Sluice's table for different
// parameters, and then without Sluice's table. Only foreign rules make traffic bypass the proxy.
func TestInspectAsInstalledUsesTheDesiredRules(t *testing.T) {
	network, _ := redirectedPod(t, compat.BackendNFT)
	different := rules.DefaultRedirect()
	different.OutboundCIDRs.All, different.InboundPorts.All = true, true
	different.InboundExcludePorts = []rules.PortRange{{First: 15020, Last: 15020}}
	if _, err := nft.Apply(network.Pod, rules.MustCompile(different)); err != nil {
		t.Fatal(err)
	}
	inspect := func(want foreign.Verdict) {
		t.Helper()
		found := foreign.InspectAsInstalled(network.Pod, captureAll(), diff.DefaultBudget)
		if found.Verdict() != want {
			t.Errorf("verdict %s, want %s:\n%s", found.Verdict(), want, strings.Join(found.Messages(), "\n"))
		}
	}
	nftables(t, network, "table ip own { chain out { type filter hook output priority -300; tcp dport 80 counter; }; }")
	inspect(foreign.None)
	nftables(t, network, "add rule ip own out tcp dport 80 notrack")
	inspect(foreign.Bypassed)
	if _, err := nft.Remove(network.Pod); err != nil {
		t.Fatal(err)
	}
	inspect(foreign.Bypassed)
}

// TestInspectAsInstalledKeepsTheOrderOfChains inspects a namespace with Sluice's table for
// different parameters and a foreign NAT chain at the same priority, which was registered last and
// therefore runs first.
func TestInspectAsInstalledKeepsTheOrderOfChains(t *testing.T) {
	network, desired := redirectedPod(t, compat.BackendNFT)
	if _, err := nft.Remove(network.Pod); err != nil {
		t.Fatal(err)
	}
	nftables(t, network, "add table ip own") // older than Sluice's table
	different := rules.DefaultRedirect()
	different.OutboundCIDRs.All = true
	if _, err := nft.Apply(network.Pod, rules.MustCompile(different)); err != nil {
		t.Fatal(err)
	}
	nftables(t, network, fmt.Sprintf("table ip own { chain out { type nat hook output priority %d; tcp dport 80 redirect to :9999; }; }",
		rules.NATPriority))
	found := foreign.InspectAsInstalled(network.Pod, desired, diff.DefaultBudget)
	if found.Verdict() == foreign.None {
		t.Errorf("verdict %s, want %s, or %s if the kernel does not report the order", found.Verdict(),
			foreign.Bypassed, foreign.Unknown)
	}
}

// TestInspectAsInstalledOrdersChainsByPriority inspects a namespace without Sluice's rules, in
// which a foreign NAT chain has a lower priority than Sluice's chains will have, but is not the
// first NAT chain.
func TestInspectAsInstalledOrdersChainsByPriority(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Run(t, ns, `table ip own {
		chain first { type nat hook output priority -150; }
		chain second { type nat hook output priority -120; tcp dport 80 redirect to :9999; }
	}`, "nft", "-f", "-")
	found := foreign.InspectAsInstalled(ns, captureAll(), diff.DefaultBudget)
	if found.Verdict() != foreign.Bypassed {
		t.Errorf("verdict %s, want %s:\n%s", found.Verdict(), foreign.Bypassed,
			strings.Join(found.Messages(), "\n"))
	}
}

// TestInspectAsInstalledInstallsTheRulesBesideEmptyObjects inspects namespaces that have no rules
// of Sluice, but an empty table or chain with a name that Sluice uses. Only foreign rules make
// traffic bypass the proxy.
func TestInspectAsInstalledInstallsTheRulesBesideEmptyObjects(t *testing.T) {
	for name, add := range map[string]func(*netns.NS){
		"table": func(ns *netns.NS) { istiotest.Run(t, ns, "table inet sluice { }", "nft", "-f", "-") },
		"legacy chain": func(ns *netns.NS) {
			istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4, "*nat\n:SLUICE_x - [0:0]\nCOMMIT\n")
		},
	} {
		ns := netnstest.NewPod(t)
		add(ns)
		inspect := func(want foreign.Verdict) {
			t.Helper()
			found := foreign.InspectAsInstalled(ns, captureAll(), diff.DefaultBudget)
			if found.Verdict() != want {
				t.Errorf("%s: verdict %s, want %s: %q", name, found.Verdict(), want, found.Messages())
			}
		}
		inspect(foreign.None)
		istiotest.Run(t, ns, "table ip own { chain out { type filter hook output priority -300; tcp dport 80 notrack; }; }",
			"nft", "-f", "-")
		inspect(foreign.Bypassed)
	}
}

// TestInspectDriftedEvaluatesAllFamilies inspects namespaces whose Sluice rules capture no packet.
func TestInspectDriftedEvaluatesAllFamilies(t *testing.T) {
	for name, add := range map[string]func(*netns.NS){
		"nft": func(ns *netns.NS) {
			istiotest.Run(t, ns, `table inet sluice { chain nat-output { type nat hook output priority -100; return; }; }
				table ip a { chain ISTIO_OUTPUT { return; }; }`, "nft", "-f", "-")
		},
		"legacy": func(ns *netns.NS) {
			istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv4,
				"*nat\n:SLUICE_x - [0:0]\n-A OUTPUT -j SLUICE_x\n-A SLUICE_x -j RETURN\nCOMMIT\n")
		},
	} {
		ns := netnstest.NewPod(t)
		add(ns)
		found := foreign.InspectDrifted(ns, captureAll(), diff.DefaultBudget)
		if found.Verdict() != foreign.Bypassed {
			t.Errorf("%s: verdict %s, want %s: %q", name, found.Verdict(), foreign.Bypassed, found.Messages())
		}
	}
}

// TestForeignChainWithANameOfSluice inspects a pod with Sluice's rules in iptables-legacy and with
// a chain named like one of Sluice's chains in table filter, which never contains Sluice's rules.
func TestForeignChainWithANameOfSluice(t *testing.T) {
	network, desired := redirectedPod(t, compat.BackendLegacy)
	istiotest.Restore(t, network.Pod, istiotest.Legacy, rules.IPv4,
		"*filter\n:SLUICE_x - [0:0]\n-A OUTPUT -j SLUICE_x\n-A SLUICE_x -j NFQUEUE\nCOMMIT\n")
	checkEffect(t, network, desired, foreign.Unknown, "in a rule of iptables-legacy: ")
}

// TestTooLargeLegacyTableHasAnUnknownEffect checks that rules of iptables-legacy that exceed the
// limit have an unknown effect, and invalidate a snapshot that was made before they were added.
func TestTooLargeLegacyTableHasAnUnknownEffect(t *testing.T) {
	network, desired := redirectedPod(t, compat.BackendNFT)
	found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
	if found.Verdict() != foreign.None || !found.IsValid(network.Pod) {
		t.Fatalf("without foreign rules: verdict %s, want a valid snapshot with %s", found.Verdict(), foreign.None)
	}
	istiotest.RestoreLargeTable(t, network.Pod, "filter")
	if found.IsValid(network.Pod) {
		t.Error("the snapshot is valid after rules were added")
	}
	for name, effect := range map[string]foreign.Effect{
		"Inspect":            foreign.Inspect(network.Pod, desired, diff.DefaultBudget).Effect,
		"InspectAsInstalled": foreign.InspectAsInstalled(network.Pod, desired, diff.DefaultBudget),
		"InspectDrifted":     foreign.InspectDrifted(network.Pod, desired, diff.DefaultBudget).Effect,
	} {
		const want = "iptables-legacy ip filter: read: the tables exceed the limit of 32 MiB"
		if text := fmt.Sprint(effect.Unknown); effect.Verdict() != foreign.Unknown || !strings.Contains(text, want) {
			t.Errorf("%s: verdict %s, unknown %s; want unknown because of %q", name, effect.Verdict(), text, want)
		}
	}
}

// BenchmarkIsValid measures IsValid, which the audit of a pod calls in addition to comparing
// Sluice's rules.
func BenchmarkIsValid(b *testing.B) {
	for _, backendName := range []compat.BackendName{compat.BackendNFT, compat.BackendLegacy} {
		b.Run(string(backendName), func(b *testing.B) {
			network, desired := redirectedPod(b, backendName)
			found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			for b.Loop() {
				if !found.IsValid(network.Pod) {
					b.Fatal("the snapshot is not valid")
				}
			}
		})
	}
}
