package foreign_test

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// query is a DNS query to an address outside the node, which the ruleset redirects to the DNS
// server of the Istio agent. inbound is a connection to the pod.
var (
	query = testbed.Call{
		Network: "udp", Owner: testbed.ApplicationOwner, To: netip.MustParseAddrPort("10.9.9.9:53"),
		Timeout: answerTimeout,
	}
	inbound = testbed.Call{
		Network: "tcp", From: testbed.FromNeighbor, To: netip.AddrPortFrom(testbed.PodIP4, 8080),
		Timeout: answerTimeout,
	}
)

// TestEffectOnLaterPackets loads foreign rules while a connection is open. It compares what happens
// to the next request of the connection with the decision.
func TestEffectOnLaterPackets(t *testing.T) {
	outbound := call
	outbound.Timeout = answerTimeout
	for _, row := range []struct {
		name  string
		load  setup
		rules string // the argument of load
		call  testbed.Call
		mode  rules.Mode // ModeRedirect if it is empty
		// leaves reports that packets of the next request leave the pod, although they are
		// redirected.
		leaves     bool
		answeredBy testbed.Name // the listener that answers the next request, empty for none

		verdict  foreign.Verdict
		contains string // a part of the messages
	}{
		{
			name: "accepted", load: nftables, call: query, answeredBy: testbed.DNS,
			rules:   `table ip own { chain out { type filter hook output priority 0; ct state established accept; }; }`,
			verdict: foreign.None,
		},
		{
			name: "dropped", load: legacy, call: query,
			rules:   "*filter\n-A OUTPUT -m conntrack --ctstate ESTABLISHED -j DROP\nCOMMIT\n",
			verdict: foreign.None,
		},
		{
			name: "a new destination in a chain that routes again", load: nftables, call: query,
			rules: `table ip own { chain out { type route hook output priority 0
				ct state established udp dport 15053 ip daddr set 10.9.9.9 udp dport set 53; }; }`,
			leaves: true, answeredBy: testbed.Outside,
			verdict: foreign.Unknown, contains: "in a rule of nft: ip own out #1",
		},
		{
			name: "a queue at output", load: legacy, call: query,
			rules:   "*filter\n-A OUTPUT -m conntrack --ctstate ESTABLISHED -j NFQUEUE\nCOMMIT\n",
			verdict: foreign.Unknown, contains: "NFQUEUE", // no program reads the queue
		},
		{
			name: "a queue for other connections", load: legacy, call: query, answeredBy: testbed.DNS,
			rules:   "*filter\n-A OUTPUT -p tcp --dport 8080 -m conntrack --ctstate ESTABLISHED -j NFQUEUE\nCOMMIT\n",
			verdict: foreign.None,
		},
		{
			name: "copies at output", load: nftables, call: outbound,
			rules: `table ip own { chain out { type filter hook output priority -150
				ct state established ip daddr 10.9.9.9 dup to 10.244.1.1; }; }`,
			leaves:  true, // the other machine resets the connection
			verdict: foreign.Unknown, contains: "in a rule of nft: ip own out #1",
		},
		{
			name: "copies after the redirection", load: nftables, call: outbound,
			rules: `table ip own { chain out { type filter hook output priority 0
				ct state established tcp dport 15001 dup to 10.244.1.1; }; }`,
			leaves: true, answeredBy: testbed.Outbound,
			verdict: foreign.Unknown, contains: "in a rule of nft: ip own out #1",
		},
		{
			name: "copies at postrouting", load: legacy, call: query,
			rules:  "*mangle\n-A POSTROUTING -m conntrack --ctstate ESTABLISHED -j TEE --gateway 10.244.1.1\nCOMMIT\n",
			leaves: true, answeredBy: testbed.DNS,
			verdict: foreign.Unknown, contains: "in a rule of iptables-legacy: ip mangle POSTROUTING #1",
		},
		{
			name: "copies on arrival on lo", load: iptablesNFT, call: query,
			rules:  "*mangle\n-A PREROUTING -i lo -m conntrack --ctstate ESTABLISHED -j TEE --gateway 10.244.1.1\nCOMMIT\n",
			leaves: true, answeredBy: testbed.DNS,
			verdict: foreign.Unknown, contains: "in a rule of iptables-nft: ip mangle PREROUTING #1",
		},
		{
			name: "copies at input", load: legacy, call: query,
			rules:  "*mangle\n-A INPUT -i lo -m conntrack --ctstate ESTABLISHED -j TEE --gateway 10.244.1.1\nCOMMIT\n",
			leaves: true, answeredBy: testbed.DNS,
			verdict: foreign.Unknown, contains: "iptables-legacy: ip mangle INPUT #1",
		},
		{
			name: "a mark that a policy rule routes by eth0", load: routeMarkedByPolicyRule, call: query, answeredBy: testbed.DNS,
			rules:   `table ip own { chain out { type route hook output priority 0; ct state established meta mark set 7; }; }`,
			verdict: foreign.None,
		},
		{
			name: "a new zone, in which conntrack begins no connection", load: withoutLooseConntrack, call: outbound,
			rules: `table ip own { chain out { type filter hook output priority -320
				tcp dport 8080 tcp flags & syn == 0 ct zone set 7; }; }`,
			leaves:  true, // the other machine resets the connection
			verdict: foreign.Unknown, contains: "in a rule of nft: ip own out #1",
		},
		{
			name: "inbound, copies", load: nftables, call: inbound,
			rules: `table ip own { chain in { type filter hook prerouting priority -150
				ct state established tcp dport 8080 dup to 10.244.1.1; }; }`,
			answeredBy: testbed.Inbound,
			verdict:    foreign.Unknown, contains: "in a rule of nft: ip own in #1",
		},
		{
			name: "inbound, the application's port after the redirection", load: nftables, call: inbound,
			rules: `table ip own { chain in { type filter hook prerouting priority 0
				ct state established tcp dport 15006 tcp dport set 8080; }; }`,
			verdict: foreign.Unknown, contains: "in a rule of nft: ip own in #1",
		},
		{
			name: "inbound, other connections", load: nftables, call: inbound, answeredBy: testbed.Inbound,
			rules: `table ip own { chain in { type filter hook prerouting priority 0
				ct state established tcp dport 8080 tcp dport set 8081; }; }`,
			verdict: foreign.None,
		},
		{
			name: "TPROXY, a new port", load: nftables, call: inbound, mode: rules.ModeTProxy,
			rules: `table ip own { chain in { type filter hook prerouting priority 0
				ct state established tcp dport 8080 tcp dport set 8081; }; }`,
			verdict: foreign.Unknown, contains: "in a rule of nft: ip own in #1",
		},
		{
			name: "TPROXY, copies before the rules", load: legacy, call: inbound, mode: rules.ModeTProxy,
			rules:      "*raw\n-A PREROUTING -p tcp --dport 8080 --tcp-flags SYN NONE -j TEE --gateway 10.244.1.1\nCOMMIT\n",
			answeredBy: testbed.Inbound,
			verdict:    foreign.Unknown, contains: "in a rule of iptables-legacy: ip raw PREROUTING #1",
		},
		{
			name: "TPROXY, a new mark", load: nftables, call: inbound, mode: rules.ModeTProxy,
			rules:      `table ip own { chain in { type filter hook prerouting priority 0; ct state established meta mark set 7; }; }`,
			answeredBy: testbed.Inbound,
			verdict:    foreign.None,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, row.mode)
			const watch = `table ip watch { chain in {
				type filter hook prerouting priority -400; ip protocol { tcp, udp } ip saddr 10.244.1.5 counter; }; }`
			conn, err := network.Open(row.call)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			first := conn.Ask()
			if first.By != testbed.DNS && first.By != testbed.Outbound && first.By != testbed.Inbound {
				t.Fatalf("the first request was answered by %s, want a listener of the proxy", first)
			}
			istiotest.Run(t, network.Neighbor, watch, "nft", "-f", "-")
			row.load(t, network, row.rules)
			if row.answeredBy == "" {
				conn.SetTimeout(noAnswerTimeout)
			}
			if next := conn.Ask(); next.By != row.answeredBy {
				t.Errorf("the next request was answered by %s, want %q", next, row.answeredBy)
			}
			counted := istiotest.Run(t, network.Neighbor, "", "nft", "list", "table", "ip", "watch")
			if leaves := !strings.Contains(counted, "counter packets 0"); row.call.From == testbed.FromPod && leaves != row.leaves {
				t.Errorf("packets leave the pod: %t, want %t", leaves, row.leaves)
			}
			checkEffect(t, network, desired, row.verdict, row.contains)
		})
	}
}

// routeMarkedByPolicyRule loads rules with nft, and routes packets with the mark 7 by eth0.
func routeMarkedByPolicyRule(t *testing.T, network *testbed.Network, text string) {
	t.Helper()
	nftables(t, network, text)
	istiotest.Run(t, network.Pod, "", "ip", "rule", "add", "fwmark", "7", "lookup", "98", "priority", "20")
	istiotest.Run(t, network.Pod, "", "ip", "route", "add", "default", "via", "10.244.1.1", "table", "98")
}

// withoutLooseConntrack loads rules with nft, and makes conntrack reject connections whose first
// packet is not a SYN.
func withoutLooseConntrack(t *testing.T, network *testbed.Network, text string) {
	t.Helper()
	nftables(t, network, text)
	istiotest.Run(t, network.Pod, "", "sysctl", "-w", "net.netfilter.nf_conntrack_tcp_loose=0")
}

// podWithDNS is like redirectedPod, with an application. The pod also captures DNS, and inbound
// traffic in the given mode.
func podWithDNS(t *testing.T, mode rules.Mode) (*testbed.Network, rules.Ruleset) {
	t.Helper()
	network, err := testbed.New(testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	r := rules.DefaultRedirect()
	r.IPv6, r.Mode = true, cmp.Or(mode, rules.ModeRedirect)
	r.OutboundCIDRs.All, r.InboundPorts.All, r.DNS.Capture, r.DNS.All = true, true, true, true
	proxy := testbed.ProxyOptions{Owner: testbed.ProxyOwner}
	if mode == rules.ModeTProxy {
		proxy = testbed.ProxyOptions{Owner: testbed.TProxyOwner, Transparent: true}
	}
	if err := network.StartProxy(proxy); err != nil {
		t.Fatal(err)
	}
	if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
		t.Fatal(err)
	}
	desired := rules.MustCompile(r)
	b, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Apply(network.Pod, desired, compat.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return network, desired
}

// checkEffect checks the verdict about the live rules of the pod, and that the messages contain the
// text. It returns the snapshot.
func checkEffect(
	t *testing.T, network *testbed.Network, desired rules.Ruleset, want foreign.Verdict, contains string,
) foreign.Snapshot {
	t.Helper()
	found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
	text := strings.Join(found.Messages(), "\n")
	t.Log(text)
	if found.Verdict() != want || !strings.Contains(text, contains) {
		t.Errorf("verdict %s: %s\nwant %s with %q", found.Verdict(), text, want, contains)
	}
	return found
}
