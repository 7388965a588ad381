package kerneltest_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestHelpersAffectNAT verifies the fact ExpectationFollowsMaster. If the master connection is
// translated, a connection that a conntrack helper expects is translated in the same way, and
// traverses no NAT chain. Otherwise the expected connection traverses the NAT chains.
func TestHelpersAffectNAT(t *testing.T) {
	const (
		assigns = "table ip helper {\nct helper tftp {\ntype \"tftp\" protocol udp\n}\n" +
			"chain c {\ntype filter hook output priority 0;\n" +
			"udp dport { 69, 6969 } ct helper set \"tftp\"\n}\n}\n"
		translates = "table ip translates {\nchain c {\ntype nat hook output priority -100;\n" +
			"udp dport 6969 dnat to 10.244.1.1:69\n}\n}\n"
		redirects = "table ip redirects {\nchain c {\ntype nat hook prerouting priority -100;\n" +
			"udp dport 40000 redirect to :41000\n}\n}\n"
	)
	for _, tc := range []struct {
		name, rules string
		server      string // destination of the request
		port        int    // at which the data arrives
	}{
		{
			"a helper and a translated master connection", assigns + translates + redirects,
			"10.244.1.1:6969", 40000,
		},
		{
			"a helper and an untranslated master connection", assigns + redirects,
			"10.244.1.1:69", 41000,
		},
		{"no helper", translates + redirects, "10.244.1.1:6969", 41000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			network := newTestbed(t)
			istiotest.Run(t, network.Pod, tc.rules, "nft", "-f", "-")
			client, redirected := listenUDP(t, network.Pod, "10.244.1.5:40000"),
				listenUDP(t, network.Pod, "10.244.1.5:41000")
			data := listenUDP(t, network.Neighbor, "10.244.1.1:5000")
			server, err := net.ResolveUDPAddr("udp4", tc.server)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.WriteTo([]byte("\x00\x01file\x00octet\x00"), server); err != nil {
				t.Fatal(err)
			}
			if _, err := data.WriteTo([]byte("data"), client.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			arrived := make(chan int, 2)
			for _, c := range []net.PacketConn{client, redirected} {
				go func() {
					buffer := make([]byte, 64)
					for {
						n, from, err := c.ReadFrom(buffer)
						if err != nil {
							return // closed
						}
						if string(buffer[:n]) == "data" && from.(*net.UDPAddr).Port == 5000 {
							arrived <- c.LocalAddr().(*net.UDPAddr).Port
						}
					}
				}()
			}
			select {
			case port := <-arrived:
				if port != tc.port {
					t.Errorf("the data arrived at port %d, want %d", port, tc.port)
				}
			case <-time.After(time.Minute):
				t.Errorf("the data arrived at no port within a minute, want port %d", tc.port)
			}
		})
	}
}

// listenUDP opens a socket in a namespace and closes it when the test ends.
func listenUDP(t *testing.T, ns *netns.NS, address string) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestStatesOfExpectedConnections verifies, for connections that conntrack expects, the facts
// RelatedFollowsOrigin and ICMPStateFollowsType. Packets in the original direction, including TCP
// resets and ICMP requests, are related until there is a reply. Replies are established.
func TestStatesOfExpectedConnections(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Run(t, ns, `table ip a {
		ct helper tftp { type "tftp" protocol udp
		}
		chain helper { type filter hook output priority 0
		udp dport 69 ct helper set "tftp"
		}
		chain unanswered { type filter hook input priority 0
		tcp dport 80 drop
		}
		chain states { type filter hook output priority 0
		udp dport 6000 ct state related ct direction original counter
		udp dport 5000 ct state established ct direction reply counter
		tcp flags & (syn | rst) == syn ct state related ct direction original counter
		tcp flags & rst == rst ct state related ct direction original counter
		icmp type echo-request ct state related ct direction original counter
		icmp type echo-reply ct state established ct direction reply counter
		ct state related ct direction reply counter
		}
	}`, "nft", "-f", "-")
	client, server := listenUDP(t, ns, "127.0.0.1:5000"), listenUDP(t, ns, "127.0.0.1:6000")
	master := listenUDP(t, ns, "127.0.0.1:4000")
	to := listenUDP(t, ns, "127.0.0.1:69").LocalAddr()
	if _, err := master.WriteTo([]byte("x"), to); err != nil {
		t.Fatal(err)
	}
	ports := func(protocol byte, from, to uint16) []*nl.RtAttr {
		return []*nl.RtAttr{
			nl.NewRtAttr(nl.CTA_PROTO_NUM, []byte{protocol}),
			nl.NewRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(from)),
			nl.NewRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(to)),
		}
	}
	const icmpID, icmpType, icmpCode = 4, 5, 6 // enum ctattr_l4proto
	echoRequest := []*nl.RtAttr{
		nl.NewRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_ICMP}),
		nl.NewRtAttr(icmpID, nl.BEUint16Attr(8)),
		nl.NewRtAttr(icmpType, []byte{8}), nl.NewRtAttr(icmpCode, []byte{0}),
	}
	for _, connection := range []struct {
		expected []*nl.RtAttr
		send     func() error
	}{
		{ports(unix.IPPROTO_UDP, 5000, 6000), func() error {
			_, err := client.WriteTo([]byte("x"), server.LocalAddr())
			if err == nil {
				_, err = server.WriteTo([]byte("x"), client.LocalAddr())
			}
			return err
		}},
		{ports(unix.IPPROTO_TCP, 1000, 80), func() error {
			return sendRaw(tcpPacket(rules.SYN, 0), tcpPacket(rules.RST, 1))
		}},
		{echoRequest, func() error {
			ping, err := net.Dial("ip4:1", "127.0.0.1")
			if err != nil {
				return err
			}
			defer ping.Close()
			_, err = ping.Write(icmpMessage(8, nil))
			return err
		}},
	} {
		err := ns.Do(func() error {
			// The helper allows one expectation at a time.
			if err := expect(ports(unix.IPPROTO_UDP, 4000, 69), connection.expected); err != nil {
				return fmt.Errorf("expect a connection: %w", err)
			}
			return connection.send()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	states := readLive(t, ns).Tables[0].Chains[2]
	for i := range states.Rules {
		want := uint64(1)
		if i == len(states.Rules)-1 {
			want = 0
		}
		if got := states.Rules[i].Hits.Packets; got != want {
			t.Errorf("%s: the kernel has counted %d packets, want %d", &states.Rules[i], got, want)
		}
	}
}

// expect makes conntrack expect a connection of 127.0.0.1 to itself, in the namespace of the
// thread. The master connection, also of 127.0.0.1, has a helper. Each argument contains the
// attributes below CTA_TUPLE_PROTO.
func expect(master, expected []*nl.RtAttr) error {
	const expectMaster, expectTuple, expectMask, expectTimeout = 1, 2, 3, 4 // enum ctattr_expect
	nested := func(kind int, children ...*nl.RtAttr) *nl.RtAttr {
		a := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
		for _, c := range children {
			a.AddChild(c)
		}
		return a
	}
	tuple := func(kind int, address [4]byte, protocol []*nl.RtAttr) *nl.RtAttr {
		return nested(kind,
			nested(nl.CTA_TUPLE_IP, nl.NewRtAttr(nl.CTA_IP_V4_SRC, address[:]),
				nl.NewRtAttr(nl.CTA_IP_V4_DST, address[:])),
			nested(nl.CTA_TUPLE_PROTO, protocol...))
	}
	loopback, everyBit := [4]byte{127, 0, 0, 1}, [4]byte{255, 255, 255, 255}
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK_EXP<<8, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET})
	request.AddData(tuple(expectMaster, loopback, master))
	request.AddData(tuple(expectTuple, loopback, expected))
	request.AddData(tuple(expectMask, everyBit, expected))
	request.AddData(nl.NewRtAttr(expectTimeout, nl.BEUint32Attr(100)))
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}
