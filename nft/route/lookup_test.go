package route_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
)

// observerTable marks UDP packets, and assigns those with destination port 9 to a transparent
// listener. It has three counters: of all UDP packets at the end of prerouting, of the delivered
// packets and of the forwarded packets.
const observerTable = `table ip t {
	chain p {
		type filter hook prerouting priority -150
		meta l4proto udp meta mark set 7
		udp dport 9 tproxy to 127.0.0.1:5000
	}
	chain a { type filter hook prerouting priority 300; meta l4proto udp counter; }
	chain i { type filter hook input priority 0; meta l4proto udp counter; }
	chain f { type filter hook forward priority 0; meta l4proto udp counter; }
}`

// TestDelivers compares the result of Delivers with the kernel's decision for packets to port 9,
// which tproxy assigns to a listener, and to port 10. The kernel never forwards a packet that is
// assigned to a listener: it delivers the packet to this host or drops it.
func TestDelivers(t *testing.T) {
	netnstest.RequireBinary(t, "nft")
	const rule, local = "-4 rule add fwmark 7 lookup 100", "-4 route add local default dev lo table 100"
	for _, tc := range []struct {
		name        string
		routes      []string
		forwards    bool
		destination string
		want        bool
	}{
		{"an address of the host", nil, false, "10.1.0.1", true},
		{"an address of the host that forwards", nil, true, "10.1.0.1", true},
		{"another address", nil, false, "192.0.2.1", false},
		{"another address and forwarding", nil, true, "192.0.2.1", false},
		{"a policy rule without its route", []string{rule}, true, "192.0.2.1", false},
		{"a policy route", []string{rule, local}, false, "192.0.2.1", true},
		{"a policy route and forwarding", []string{rule, local}, true, "192.0.2.1", true},
		{
			"a policy route of another mark",
			[]string{strings.Replace(rule, "7", "8", 1), local},
			true, "192.0.2.1", false,
		},
		{
			"a policy rule with an interface and a masked mark",
			[]string{"-4 rule add iif eth0 fwmark 1/1 lookup 100", local},
			false, "192.0.2.1", true,
		},
		{
			"a policy route with an encapsulation",
			[]string{rule, local + " encap seg6 mode encap segs fd01::1"},
			false, "192.0.2.1", false,
		},
		{"a prohibited destination", []string{"-4 route add prohibit 192.0.2.1"}, false, "192.0.2.1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			here, neighbor := connectedPair(t)
			ip(t, here, append([]string{"-4 route add default via 10.1.0.3"}, tc.routes...)...)
			if tc.forwards {
				err := here.Do(func() error {
					return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, port := range []string{":9", ":10"} {
				wantForwarded := tc.forwards && port == ":10" && !tc.want
				_ = nftCommand(here, "delete table ip t")
				if err := nftCommand(here, observerTable); err != nil {
					t.Fatal(err)
				}
				listener := listen(t, here)
				to := netip.MustParseAddrPort(tc.destination + port)
				got, err := route.Delivers(here, route.ReceivedPacket{
					Interface: "eth0", Source: netip.MustParseAddr("10.1.0.2"),
					Destination: to.Addr(), Mark: 7,
				})
				if err != nil || got != tc.want {
					t.Errorf("port %s: Delivers returns %t, error %v, want %t", port, got, err, tc.want)
				}
				send(t, neighbor, to)
				delivered, forwarded := waitCounters(t, here)
				if delivered != tc.want || forwarded != wantForwarded {
					t.Errorf("port %s: delivered %t, want %t; forwarded %t, want %t", port,
						delivered, tc.want, forwarded, wantForwarded)
				}
				_ = listener.Close()
			}
		})
	}
}

func TestDeliversFailsForAMissingInterface(t *testing.T) {
	_, err := route.Delivers(netnstest.New(t), route.ReceivedPacket{
		Interface: "eth7", Source: netip.MustParseAddr("10.1.0.2"),
		Destination: netip.MustParseAddr("10.1.0.1"),
	})
	if err == nil {
		t.Error("Delivers succeeded for a missing interface, want an error")
	}
}

// connectedPair returns two namespaces whose interfaces eth0 have the addresses 10.1.0.1 and
// 10.1.0.2. The second sends packets to any address through the first.
func connectedPair(t *testing.T) (here, neighbor *netns.NS) {
	t.Helper()
	here, neighbor = netnstest.New(t), netnstest.New(t)
	err := here.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0",
			PeerNamespace: netlink.NsFd(neighbor.FD()),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	ip(t, here, "address add 10.1.0.1/24 dev eth0", "link set eth0 up", "link set lo up")
	ip(t, neighbor, "address add 10.1.0.2/24 dev eth0", "link set eth0 up",
		"route add default via 10.1.0.1")
	return here, neighbor
}

// nftCommand runs the commands of text with the nft command.
func nftCommand(ns *netns.NS, text string) error {
	return ns.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return errors.New(string(out))
		}
		return nil
	})
}

// listen opens a transparent listener on 127.0.0.1:5000.
func listen(t *testing.T, ns *netns.NS) (c net.PacketConn) {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		})
	}}
	err := ns.Do(func() (err error) {
		c, err = config.ListenPacket(t.Context(), "udp4", "127.0.0.1:5000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// send sends two packets. When the second packet has passed prerouting, the kernel has delivered,
// forwarded or dropped the first packet.
func send(t *testing.T, ns *netns.NS, to netip.AddrPort) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := net.ListenPacket("udp4", "10.1.0.2:4000")
		if err != nil {
			return err
		}
		defer c.Close()
		for range 2 {
			if _, err := c.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(to)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitCounters waits until both packets of send have passed prerouting, and reports whether packets
// were delivered and forwarded.
func waitCounters(t *testing.T, ns *netns.NS) (delivered, forwarded bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		var out []byte
		err := ns.Do(func() (err error) {
			out, err = exec.Command("nft", "list", "table", "ip", "t").Output()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		counts := regexp.MustCompile(`counter packets (\d+)`).FindAllSubmatch(out, -1)
		if len(counts) != 3 {
			t.Fatalf("%d counters, want 3:\n%s", len(counts), out)
		}
		if string(counts[0][1]) == "2" {
			return string(counts[1][1]) != "0", string(counts[2][1]) != "0"
		}
	}
	t.Fatal("the packets did not arrive within 30 seconds")
	return false, false
}
