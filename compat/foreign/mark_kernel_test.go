package foreign_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestEffectOnUnmarkedPackets compares the verdict about rules for marks, and about translations to
// the pod's own addresses, with the listener that answers a real connection: from another host to
// the pod, or from the pod to another host. Packets from another host, and new connections, have no
// mark unless a rule sets one.
func TestEffectOnUnmarkedPackets(t *testing.T) {
	for _, row := range []struct {
		name     string
		mode     rules.Mode
		load     setup
		rules    string // the argument of load
		from     testbed.Caller
		by       testbed.Name // empty for no answer
		verdict  foreign.Verdict
		contains string
	}{
		{
			name: "REDIRECT, translation to the proxy's port on the pod's address",
			load: nftables, from: testbed.FromNeighbor, by: testbed.Inbound, verdict: foreign.None,
			rules: "table ip own { chain in { type nat hook prerouting priority -150; tcp dport 8080 dnat to 10.244.1.5:15006; }; }",
		},
		{
			name: "REDIRECT, translation to another port on the pod's address",
			load: nftables, from: testbed.FromNeighbor, verdict: foreign.Bypassed,
			rules:    "table ip own { chain in { type nat hook prerouting priority -150; tcp dport 8080 dnat to 10.244.1.5:8081; }; }",
			contains: "rule of nft: ip own in #1",
		},
		{
			name: "REDIRECT, translation to the proxy's port on 127.0.0.1",
			load: nftables, from: testbed.FromPod, by: testbed.Outbound, verdict: foreign.None,
			rules: "table ip own { chain out { type nat hook output priority -150; oifname != \"lo\" tcp dport 8080 dnat to 127.0.0.1:15001; }; }",
		},
		{
			name: "TPROXY, a mask of marks is cleared", mode: rules.ModeTProxy,
			load: legacy, from: testbed.FromNeighbor, by: testbed.Inbound, verdict: foreign.None,
			rules: "*raw\n-A PREROUTING -j MARK --set-xmark 0x0/0xf0000\nCOMMIT\n",
		},
		{
			name: "TPROXY, the mark of TPROXY is set", mode: rules.ModeTProxy,
			load: legacy, from: testbed.FromNeighbor, verdict: foreign.Bypassed,
			rules:    "*raw\n-A PREROUTING -p tcp --dport 8080 -j MARK --set-mark 1337\nCOMMIT\n",
			contains: "in tcp 192.0.2.10:40000 > 10.244.1.5:8080 dev eth0: goes to its destination, not captured",
		},
		{
			name: "TPROXY, marks of connections are restored", mode: rules.ModeTProxy,
			load: iptablesNFT, from: testbed.FromNeighbor, by: testbed.Inbound, verdict: foreign.None,
			rules: "*mangle\n-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000\nCOMMIT\n",
		},
		{
			name: "REDIRECT, a mark of connections that no rule sets",
			load: nftables, from: testbed.FromPod, by: testbed.Outbound, verdict: foreign.None,
			rules: "table ip own { chain out { type nat hook output priority -150; ct mark 5 dnat to 10.9.9.8; }; }",
		},
		{
			name: "TPROXY, a mark of connections that no rule sets", mode: rules.ModeTProxy,
			load: nftables, from: testbed.FromPod, by: testbed.Outbound, verdict: foreign.None,
			rules: "table ip own { chain out { type nat hook output priority -150; ct mark 5 dnat to 10.9.9.8; }; }",
		},
		{
			name: "REDIRECT, a mark of connections that a rule sets",
			load: nftables, from: testbed.FromPod, by: testbed.Outside, verdict: foreign.Bypassed,
			rules: `table ip own {
				chain marks { type filter hook output priority -150; tcp dport 8080 ct mark set 5; }
				chain out { type nat hook output priority -140; ct mark 5 meta l4proto tcp dnat to 10.9.9.9:8080; }
			}`,
			contains: "rule of nft: ip own out #1",
		},
		{
			name: "TPROXY, masquerading of a network of containers", mode: rules.ModeTProxy,
			load: legacy, from: testbed.FromNeighbor, by: testbed.Inbound, verdict: foreign.None,
			rules: "*nat\n-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\nCOMMIT\n",
		},
		{
			name: "TPROXY, masquerading by nft", mode: rules.ModeTProxy,
			load: nftables, from: testbed.FromNeighbor, by: testbed.Inbound, verdict: foreign.None,
			rules: `table ip own { chain post { type nat hook postrouting priority 100; ip saddr 172.17.0.0/16 oifname != "docker0" masquerade; }; }`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, row.mode)
			row.load(t, network, row.rules)
			to := map[testbed.Caller]string{
				testbed.FromNeighbor: "10.244.1.5:8080", testbed.FromPod: "10.9.9.9:8080",
			}[row.from]
			timeout := answerTimeout
			if row.by == "" {
				timeout = noAnswerTimeout
			}
			answer, err := network.Dial(testbed.Call{
				From: row.from, Owner: testbed.ApplicationOwner, Network: "tcp",
				To: netip.MustParseAddrPort(to), Timeout: timeout,
			})
			if err != nil || answer.By != row.by {
				t.Errorf("answer %s, error %v, want an answer from %q", answer, err, row.by)
			}
			checkEffect(t, network, desired, row.verdict, row.contains)
		})
	}
}

// TestMasqueradingDependsOnTheAddresses gives the pod the address that the proxy's connections to
// the application have. MASQUERADE may then select it.
func TestMasqueradingDependsOnTheAddresses(t *testing.T) {
	network, desired := podWithDNS(t, rules.ModeTProxy)
	legacy(t, network, "*nat\n-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE\nCOMMIT\n")
	found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
	if found.Verdict() != foreign.None || !found.IsValid(network.Pod) {
		t.Fatalf("verdict %s: %q, want a valid snapshot with %s", found.Verdict(), found.Messages(), foreign.None)
	}
	istiotest.Run(t, network.Pod, "", "ip", "address", "add", "127.0.0.6/32", "dev", "eth0")
	if found.IsValid(network.Pod) {
		t.Error("the snapshot is valid after a change of the addresses")
	}
	if found = foreign.Inspect(network.Pod, desired, diff.DefaultBudget); found.Verdict() != foreign.Unknown {
		t.Errorf("verdict %s: %q, want %s", found.Verdict(), found.Messages(), foreign.Unknown)
	}
}
