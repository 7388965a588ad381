package foreign_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestEffectOfAHelper assigns the conntrack helper of FTP to inbound connections. The proxy passes
// an answer of the application to the client. The helper reads the port in the answer, and the next
// connection of the client to this port is not redirected.
func TestEffectOfAHelper(t *testing.T) {
	const application = 9998
	for _, row := range []struct {
		name, rules string
		reaches     string // the server that the second connection reaches
		verdict     foreign.Verdict
		contains    string
	}{
		{
			"FTP", "*raw\n-A PREROUTING -p tcp --dport 8080 -j CT --helper ftp\nCOMMIT\n", "application",
			foreign.Unknown, "iptables-legacy: ip raw PREROUTING #1",
		},
		{
			"a helper that expects no TCP connection", "*raw\n-A PREROUTING -p udp --dport 137 -j CT --helper netbios-ns\nCOMMIT\n",
			"proxy", foreign.None, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, err := testbed.New(testbed.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = network.Close() }()
			desired := captureAll()
			b, err := compat.Choose(compat.BackendNFT)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Apply(network.Pod, desired, compat.Snapshot{}); err != nil {
				t.Fatal(err)
			}
			legacy(t, network, row.rules)
			answer := fmt.Sprintf("227 Entering Passive Mode (10,244,1,5,%d,%d).\r\n", application>>8, application&0xff)
			serve(t, network.Pod, rules.DefaultInboundCapturePort, "220 proxy\r\n", answer)
			serve(t, network.Pod, application, "application\r\n")
			first := dialLine(t, network.Neighbor, 8080, answer)
			defer func() { _ = first.Close() }()
			second := dialLine(t, network.Neighbor, application, row.reaches)
			_ = second.Close()
			checkEffect(t, network, desired, row.verdict, row.contains)
		})
	}
}

// TestEffectOfAnExpectation makes conntrack expect a connection because of a datagram, which is not
// captured. In TPROXY mode, the expected connection reaches the application.
func TestEffectOfAnExpectation(t *testing.T) {
	const expected = 9998
	for mode, by := range map[rules.Mode]testbed.Name{
		rules.ModeRedirect: testbed.Inbound, rules.ModeTProxy: testbed.Application,
	} {
		t.Run(string(mode), func(t *testing.T) {
			network, desired := podWithDNS(t, mode)
			nftables(t, network, fmt.Sprintf(`table ip own {
				ct expectation e { protocol tcp; dport %d; timeout 1m; size 8; l3proto ip; }
				chain post { type filter hook postrouting priority 0
					ct state new udp dport 7777 oifname "eth0" ip daddr 10.244.1.1 ct expectation set "e"; }
			}`, expected))
			for _, c := range []struct {
				testbed.Call
				by testbed.Name
			}{
				{testbed.Call{Network: "udp", Owner: testbed.ApplicationOwner, To: netip.AddrPortFrom(testbed.NeighborIP4, 7777)}, testbed.Outside},
				{testbed.Call{Network: "tcp", From: testbed.FromNeighbor, To: netip.AddrPortFrom(testbed.PodIP4, expected)}, by},
			} {
				c.Timeout = answerTimeout
				if answer, err := network.Dial(c.Call); err != nil || answer.By != c.by {
					t.Errorf("%s was answered by %s (error %v), want %s", c.Call, answer, err, c.by)
				}
			}
			found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			text := strings.Join(found.Messages(), "\n")
			const reason = "connections that conntrack expects because of this rule may not be redirected: nft: ip own post #1"
			if isReported := strings.Contains(text, reason); isReported != (mode == rules.ModeTProxy) {
				t.Errorf("verdict %s: %s\nwant %q only in TPROXY mode", found.Verdict(), text, reason)
			}
		})
	}
}

// serve sends each client of a port in the namespace the lines, each in a packet.
func serve(t *testing.T, ns *netns.NS, port uint16, lines ...string) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			for _, line := range lines {
				_, _ = io.WriteString(c, line)
			}
		}
	}()
}

// dialLine connects to a port of the pod from the namespace, and waits until the server has sent
// the text.
func dialLine(t *testing.T, ns *netns.NS, port uint16, text string) net.Conn {
	t.Helper()
	var c net.Conn
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := ns.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, "tcp4", netip.AddrPortFrom(testbed.PodIP4, port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(answerTimeout))
	var read strings.Builder
	buffer := make([]byte, 256)
	for !strings.Contains(read.String(), strings.TrimSpace(text)) {
		n, err := c.Read(buffer)
		if err != nil {
			t.Fatalf("port %d: %v after %q, want %q", port, err, read.String(), text)
		}
		read.Write(buffer[:n])
	}
	return c
}
