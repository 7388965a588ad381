package foreign_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestInboundConnectionsOverABridge makes the pod's interface a port of a bridge, and moves the
// pod's IPv4 address to the bridge. It checks which listener answers a connection from another
// host, and the verdict of Inspect.
func TestInboundConnectionsOverABridge(t *testing.T) {
	netnstest.RequireBridgeNetfilter(t)
	const disableBridgeNetfilter = `
		echo 0 > /proc/sys/net/bridge/bridge-nf-call-iptables
		echo 0 > /proc/sys/net/bridge/bridge-nf-call-ip6tables`
	for _, row := range []struct {
		name     string
		mode     rules.Mode
		commands string
		by       testbed.Name // the listener that answers
		verdict  foreign.Verdict
	}{
		{
			name: "TPROXY", mode: rules.ModeTProxy,
			by: testbed.Application, verdict: foreign.Unknown,
		},
		{
			name: "TPROXY, bridge netfilter disabled", mode: rules.ModeTProxy,
			commands: disableBridgeNetfilter, by: testbed.Inbound, verdict: foreign.None,
		},
		{
			name: "TPROXY, bridge netfilter enabled for br0 only", mode: rules.ModeTProxy,
			commands: disableBridgeNetfilter + "\nip link set br0 type bridge nf_call_iptables 1",
			by:       testbed.Application, verdict: foreign.Unknown,
		},
		{name: "REDIRECT", by: testbed.Inbound, verdict: foreign.None},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, row.mode)
			before := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			if before.Verdict() != foreign.None || !before.IsValid(network.Pod) {
				t.Fatalf("verdict %s before the change: %s", before.Verdict(), strings.Join(before.Messages(), "\n"))
			}
			istiotest.Run(t, network.Pod, `
				ip link add br0 type bridge
				ip address flush dev eth0 scope global
				ip link set eth0 master br0
				ip link set br0 up
				ip address add 10.244.1.5/24 dev br0
				ip route add default via 10.244.1.1
				`+row.commands, "sh", "-e")
			answer, err := network.Dial(testbed.Call{
				From: testbed.FromNeighbor, Network: "tcp",
				To: netip.AddrPortFrom(testbed.PodIP4, 8080), Timeout: answerTimeout,
			})
			if err != nil || answer.By != row.by {
				t.Errorf("answer %s, error %v, want an answer from %q", answer, err, row.by)
			}
			if valid := before.IsValid(network.Pod); valid != (row.verdict == foreign.None) {
				t.Errorf("after the change, the snapshot is valid: %t, want %t", valid, !valid)
			}
			found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			text := strings.Join(found.Messages(), "\n")
			if found.Verdict() != row.verdict || row.verdict == foreign.Unknown && (len(found.Unknown) != 1 ||
				!strings.Contains(text, "port eth0 of the bridge br0")) {
				t.Errorf("verdict %s: %s\nwant %s", found.Verdict(), text, row.verdict)
			}
		})
	}
}
