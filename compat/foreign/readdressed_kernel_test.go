package foreign_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestEffectOnConnectionsThatAreNotRedirected makes connections that the ruleset does not redirect:
// from the pod to itself, over a route by lo, and from another machine to an excluded port. The
// foreign rules give them destinations whose connections the ruleset redirects.
func TestEffectOnConnectionsThatAreNotRedirected(t *testing.T) {
	for _, row := range []struct {
		name     string
		load     setup
		rules    string // the argument of load
		from     testbed.Caller
		to       string // the destination of the connection
		by       testbed.Name
		verdict  foreign.Verdict
		contains string
	}{
		{
			name: "the pod's address", load: legacy, to: "10.244.1.5:9999", by: testbed.Outside,
			rules:   "*nat\n-A OUTPUT -d 10.244.1.5 -p tcp -j DNAT --to-destination 10.9.9.9:8080\nCOMMIT\n",
			verdict: foreign.Bypassed, contains: "rule of iptables-legacy: ip nat OUTPUT #1",
		},
		{
			name: "the pod's address, a later chain", load: nftables, to: "10.244.1.5:9999", by: testbed.Outside,
			rules:   `table ip own { chain out { type nat hook output priority 50; oifname "lo" tcp dport 9999 dnat to 10.9.9.9:8080; }; }`,
			verdict: foreign.Bypassed, contains: "rule of nft: ip own out #1",
		},
		{
			name: "a loopback address", load: nftables, to: "127.0.0.1:9999", by: testbed.Outside,
			rules:   `table ip own { chain out { type nat hook output priority -100; ip daddr 127.0.0.1 tcp dport 9999 dnat to 10.9.9.9:8080; }; }`,
			verdict: foreign.Bypassed, contains: "rule of nft: ip own out #1",
		},
		{
			name: "a network of addresses", load: legacy, to: "10.244.1.5:8080", by: testbed.Outside,
			rules:   "*nat\n-A OUTPUT -d 10.244.1.5 -p tcp -j NETMAP --to 10.9.9.9\nCOMMIT\n",
			verdict: foreign.Unknown, contains: "in a rule of iptables-legacy: ip nat OUTPUT #1",
		},
		{
			name: "the pod's address, to the pod", load: legacy, to: "127.0.0.1:8081", by: testbed.Application,
			rules:   "*nat\n-A OUTPUT -d 127.0.0.1 -p tcp --dport 8081 -j DNAT --to-destination 10.244.1.5:8080\nCOMMIT\n",
			verdict: foreign.None,
		},
		{
			name: "the address of a service", load: legacy, to: "10.96.0.10:80", by: testbed.Outbound,
			rules:   "*nat\n-A OUTPUT -d 10.96.0.10 -p tcp --dport 80 -j DNAT --to-destination 10.9.9.9:8080\nCOMMIT\n",
			verdict: foreign.None,
		},
		{
			name: "copies of packets that a route sends over lo", load: copiedOnLoopback, to: "10.9.9.9:8080",
			by:      testbed.Outside,
			rules:   "*mangle\n-A POSTROUTING -o lo -d 10.9.9.9 -j TEE --gateway 10.244.1.1\nCOMMIT\n",
			verdict: foreign.Unknown, contains: "this rule may route them to another host: iptables-legacy: ip mangle POSTROUTING #1",
		},
		{
			name: "inbound, an excluded port", load: nftables, from: testbed.FromNeighbor, to: "10.244.1.5:15008",
			by:      testbed.Application,
			rules:   `table ip own { chain in { type nat hook prerouting priority -100; tcp dport 15008 redirect to :8080; }; }`,
			verdict: foreign.Bypassed, contains: "rule of nft: ip own in #1",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, "")
			for _, to := range []netip.AddrPort{call.To, netip.AddrPortFrom(testbed.PodIP4, 8080)} {
				if _, err := network.Dial(testbed.Call{ // makes the servers listen
					Network: "tcp", From: testbed.FromNeighbor, To: to, Timeout: noAnswerTimeout,
				}); err != nil {
					t.Fatal(err)
				}
			}
			row.load(t, network, row.rules)
			c := testbed.Call{
				Network: "tcp", From: row.from, Owner: testbed.ApplicationOwner,
				To: netip.MustParseAddrPort(row.to), Timeout: answerTimeout,
			}
			if row.from == testbed.FromPod {
				c.Local = netip.AddrPortFrom(testbed.PodIP4, 0)
			}
			answer, err := network.Dial(c)
			if err != nil {
				t.Fatal(err)
			}
			if answer.By != row.by {
				t.Errorf("the connection was answered by %s, want %q", answer, row.by)
			}
			checkEffect(t, network, desired, row.verdict, row.contains)
		})
	}
}

// copiedOnLoopback loads rules with iptables-legacy, and routes packets to 10.9.9.9 over lo.
func copiedOnLoopback(t *testing.T, network *testbed.Network, text string) {
	t.Helper()
	legacy(t, network, text)
	istiotest.Run(t, network.Pod, "", "ip", "route", "add", "10.9.9.9", "dev", "lo")
}

// TestSnapshotIsValidUntilAnAddressIsAdded tests a change for which the agent gets no event, and
// that matters because a foreign rule translates packets from or to the address.
func TestSnapshotIsValidUntilAnAddressIsAdded(t *testing.T) {
	for _, row := range []struct {
		name, rules string
		address     string // which is added
	}{
		{"at output", "*nat\n-A OUTPUT -d 10.96.0.10 -p tcp -j DNAT --to-destination 10.9.9.9:8080\nCOMMIT\n", "10.96.0.10/32"},
		{"at prerouting", "*nat\n-A PREROUTING -p tcp --dport 15008 -j DNAT --to-destination 10.99.0.1:8080\nCOMMIT\n", "10.99.0.1/32"},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, "")
			legacy(t, network, row.rules)
			found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			if found.Verdict() != foreign.None || !found.IsValid(network.Pod) {
				t.Fatalf("verdict %s before the change: %s", found.Verdict(), strings.Join(found.Messages(), "\n"))
			}
			istiotest.Run(t, network.Pod, "", "ip", "address", "add", row.address, "dev", "lo")
			if found.IsValid(network.Pod) {
				t.Error("the snapshot is valid after the change")
			}
			found = foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			if found.Verdict() != foreign.Bypassed {
				t.Errorf("verdict %s after the change, want %s", found.Verdict(), foreign.Bypassed)
			}
		})
	}
}
