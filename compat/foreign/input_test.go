package foreign_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestEffectOfARuleThatChangesThePortAtInputIsUnknown tests a rule that delivers a captured
// connection to the application instead of the proxy. [diff.Bypass] does not evaluate the hook
// input.
func TestEffectOfARuleThatChangesThePortAtInputIsUnknown(t *testing.T) {
	network, desired := redirectedPod(t, compat.BackendNFT)
	nftables(t, network, `table ip own {
		chain in { type filter hook input priority 0; tcp dport vmap { 15006 : jump to_application }; }
		chain to_application { tcp dport set 8080 counter accept; }
	}`)
	var application, client net.Conn
	var listener net.Listener
	err := network.Pod.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	err = network.Neighbor.Do(func() (err error) {
		client, err = net.DialTimeout("tcp4", net.JoinHostPort(testbed.PodIP4.String(), "8080"), 10*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if application, err = listener.Accept(); err != nil {
		t.Fatalf("the application accepted no connection: %v", err)
	}
	defer func() { _ = application.Close() }()
	found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
	const want = "the effect of this rule at input on packets is unknown: nft: ip own to_application #1"
	if text := strings.Join(found.Messages(), "\n"); found.Verdict() != foreign.Unknown ||
		!strings.HasPrefix(text, want) {
		t.Errorf("verdict %s: %s\nwant %s: %s", found.Verdict(), text, foreign.Unknown, want)
	}
}

// TestFirewallsAtInputHaveNoEffect covers rules at input that drop, accept, limit, count and mark.
func TestFirewallsAtInputHaveNoEffect(t *testing.T) {
	for _, row := range []struct {
		load  setup
		rules string
	}{
		{nftables, `table inet own {
			set seen { type ipv4_addr; flags dynamic; }
			chain in { type filter hook input priority 0; policy drop;
				ct state established accept
				ip dscp 5 accept
				limit rate 5/second log prefix "own" counter accept
				update @seen { ip saddr limit rate 3/second } accept
				meta mark set 5
				ct mark set 7
				tcp dport 22 reject with tcp reset
			}
		}`},
		{legacy, "*filter\n-A INPUT -p tcp -m limit --limit 5/s -j LOG\n-A INPUT -p tcp --dport 22 -j REJECT\nCOMMIT\n" +
			"*mangle\n-A INPUT -j MARK --set-mark 4\n-A INPUT -j CONNMARK --save-mark\nCOMMIT\n"},
	} {
		network, desired := redirectedPod(t, compat.BackendNFT)
		row.load(t, network, row.rules)
		found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
		if found.Verdict() != foreign.None {
			t.Errorf("verdict %s: %v, want %s with\n%s", found.Verdict(), found.Messages(),
				foreign.None, row.rules)
		}
	}
}
