package foreign_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestInboundConnectionsWithSynCookies makes the pod answer each SYN with a cookie. It checks which
// listener answers a connection from another host after the application has accepted a connection
// of the pod, and the verdict of Inspect.
func TestInboundConnectionsWithSynCookies(t *testing.T) {
	for _, row := range []struct {
		mode    rules.Mode
		by      testbed.Name // the listener that answers
		verdict foreign.Verdict
	}{
		{rules.ModeTProxy, testbed.Application, foreign.Unknown},
		{rules.ModeRedirect, testbed.Inbound, foreign.None},
	} {
		t.Run(string(row.mode), func(t *testing.T) {
			network, desired := podWithDNS(t, row.mode)
			before := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			if before.Verdict() != foreign.None || !before.IsValid(network.Pod) {
				t.Fatalf("verdict %s before the change: %s", before.Verdict(), strings.Join(before.Messages(), "\n"))
			}
			istiotest.Run(t, network.Pod, "echo 2 > /proc/sys/net/ipv4/tcp_syncookies", "sh", "-e")
			call := testbed.Call{
				Owner: testbed.ApplicationOwner, Network: "tcp",
				To: netip.AddrPortFrom(testbed.PodIP4, 8080), Timeout: answerTimeout,
			}
			if answer, err := network.Dial(call); err != nil || answer.By != testbed.Application {
				t.Errorf("within the pod: answer %s, error %v, want an answer of the application", answer, err)
			}
			call.From, call.Owner = testbed.FromNeighbor, rules.Owner{}
			if answer, err := network.Dial(call); err != nil || answer.By != row.by {
				t.Errorf("from a neighbor: answer %s, error %v, want an answer from %q", answer, err, row.by)
			}
			if valid := before.IsValid(network.Pod); valid != (row.verdict == foreign.None) {
				t.Errorf("after the change, the snapshot is valid: %t, want %t", valid, !valid)
			}
			found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			text := strings.Join(found.Messages(), "\n")
			if found.Verdict() != row.verdict || row.verdict == foreign.Unknown && (len(found.Unknown) != 1 ||
				!strings.Contains(text, "net.ipv4.tcp_syncookies is 2")) {
				t.Errorf("verdict %s: %s\nwant %s", found.Verdict(), text, row.verdict)
			}
		})
	}
}
