package kerneltest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// The generator cannot generate the packets of this file. The kernel itself sends most of them.

// TestResetOfARuleHasTheConnection verifies that the answer of a reject rule enters the output hook
// with the connection of the rejected packet and without a socket, and that NAT does not translate
// the answer.
func TestResetOfARuleHasTheConnection(t *testing.T) {
	network := newTestbed(t)
	istiotest.Run(t, network.Pod, `table ip a {
		chain early { type filter hook output priority -300;
			ct state related counter meta mark set 7
		}
		chain nat { type nat hook output priority -100;
			tcp sport 81 counter redirect to :99
		}
		chain replies { type filter hook output priority -290;
			ct state related ct direction reply counter
		}
		chain sockets { type filter hook output priority -280; socket transparent 0 counter
		}
		chain answers { type filter hook prerouting priority -150;
			tcp dport 81 reject with tcp reset
		}
	}`, "nft", "-f", "-")
	err := network.Neighbor.Do(func() error {
		c, err := net.Dial("tcp4", "10.244.1.5:81")
		if err == nil {
			return c.Close()
		}
		return err
	})
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dial: %v, want %v because of the rule's reset", err, unix.ECONNREFUSED)
	}
	live := readLive(t, network.Pod)
	for i, want := range []uint64{1, 1, 1, 0} {
		c := live.Tables[0].Chains[i]
		if got := c.Rules[0].Hits.Packets; got != want {
			t.Errorf("chain %s: the kernel has counted %d resets, want %d", c.Name, got, want)
		}
	}
	const reset = "out tcp 10.244.1.5:81 > 10.244.1.1:4000 dev eth0 no-socket state related " +
		"reply flags rst,ack"
	got := diff.Explain(live, parsed(t, reset)).Outcome
	if want := (rules.Outcome{Mark: 7}); got != want {
		t.Errorf("the model: %s, want: %s", got, want)
	}
}

// TestICMPErrorOfARuleHasTheConnection verifies the fact ErrorHasConnection: the ICMP error that a
// reject rule sends about the first packet of a connection belongs to this connection, although
// conntrack does not contain the connection yet.
func TestICMPErrorOfARuleHasTheConnection(t *testing.T) {
	for _, tc := range []struct{ family, address, protocol, typeAndCode string }{
		{"ip", "127.0.0.1", "icmp", "3/3"},
		{"ip6", "::1", "icmpv6", "1/4"},
	} {
		t.Run(tc.family, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Run(t, ns, fmt.Sprintf(`table %s a {
				chain early { type filter hook output priority -300
				%s type destination-unreachable ct state related counter meta mark set 7
				}
				chain answers { type filter hook output priority 0
				udp dport 9 reject
				}
			}`, tc.family, tc.protocol), "nft", "-f", "-")
			err := ns.Do(func() error {
				c, err := net.Dial("udp", net.JoinHostPort(tc.address, "9"))
				if err != nil {
					return err
				}
				defer c.Close()
				_, _ = c.Write([]byte("x")) // EPERM, because a rule rejects the packet
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			live := readLive(t, ns)
			if hits := live.Tables[0].Chains[0].Rules[0].Hits.Packets; hits != 1 {
				t.Errorf("the kernel has counted %d errors, want 1", hits)
			}
			protocol := map[string]string{"ip": "icmp", "ip6": "ipv6-icmp"}[tc.family]
			packet := fmt.Sprintf("out %s %s > %[2]s kernel-socket state related reply icmp %s",
				protocol, tc.address, tc.typeAndCode)
			got := diff.Explain(live, parsed(t, packet)).Outcome
			if got != (rules.Outcome{Mark: 7}) {
				t.Errorf("the model: %s, want: mark 0x7", got)
			}
			packet += " status confirmed"
			if got := diff.Explain(live, parsed(t, packet)).Outcome; got.UnknownMarks == "" {
				t.Errorf("the model, for a confirmed connection: %s, want unknown marks", got)
			}
		})
	}
}

// TestNATDropsICMPRedirectsOfTranslatedConnections verifies the fact NATDropsRedirects for the
// redirect of a translated connection, which is dropped, and of an untranslated one, which is not.
func TestNATDropsICMPRedirectsOfTranslatedConnections(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Run(t, ns, `table ip a {
		chain nat { type nat hook output priority -100
		udp dport 9 redirect to :10
		}
		chain before { type filter hook output priority -150
		icmp type redirect ct state related counter
		}
		chain after { type filter hook output priority 0
		icmp type redirect counter
		}
	}`, "nft", "-f", "-")
	for _, tc := range []struct {
		port   byte
		to     byte // the port after NAT
		status string
		hits   [2]uint64 // of the rules before and after NAT, including the hits of earlier rows
	}{
		{9, 10, "confirmed,dnat", [2]uint64{1, 0}},
		{11, 11, "confirmed", [2]uint64{2, 1}},
	} {
		err := ns.Do(func() error {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000},
				&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(tc.port)})
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			raw, err := net.Dial("ip4:1", "127.0.0.1")
			if err != nil {
				return err
			}
			defer raw.Close()
			_, err = raw.Write(redirectAbout(tc.to))
			if tc.hits[1] > 0 {
				return err
			}
			if !errors.Is(err, unix.EPERM) {
				t.Errorf("port %d: send a redirect: error %v, want %v", tc.port, err, unix.EPERM)
			}
			return nil
		})
		if err != nil {
			t.Errorf("port %d: %v", tc.port, err)
		}
		live := readLive(t, ns)
		var hits [2]uint64
		for _, c := range live.Tables[0].Chains {
			if i := slices.Index([]string{"before", "after"}, c.Name); i >= 0 {
				hits[i] = c.Rules[0].Hits.Packets
			}
		}
		if hits != tc.hits {
			t.Errorf("the kernel, status %s: %v redirects before and after NAT, want %v", tc.status,
				hits, tc.hits)
		}
		packet := "out icmp 127.0.0.1 > 127.0.0.1 uid 0 icmp 5/1 state related reply status " +
			tc.status
		got := diff.Explain(live, parsed(t, packet))
		if dropped := tc.hits[1] == 0; got.Outcome.Dropped != dropped || dropped &&
			len(got.Passes[0].Notes) == 0 {
			t.Errorf("the model, status %s: %s, notes %v; want dropped %t, with a note if dropped",
				tc.status, got.Outcome, got.Passes[0].Notes, dropped)
		}
	}
}

// redirectAbout returns an ICMP redirect about a UDP packet from port 4000 of 127.0.0.1 to the
// given port of 127.0.0.1.
func redirectAbout(port byte) []byte {
	message := append([]byte{5, 1, 0, 0, 127, 0, 0, 2},
		udpHeaders(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 4000, uint16(port))...)
	setICMPChecksum(message)
	return message
}

// TestMulticastCopyHasConnection verifies that the copy of a multicast packet that the host itself
// receives has a connection in chains before conntrack, and that decisions consider this.
func TestMulticastCopyHasConnection(t *testing.T) {
	network := newTestbed(t)
	istiotest.Run(t, network.Pod, `table ip a {
		chain early { type filter hook prerouting priority -300; iifname "eth0" ct state new counter
		}
		chain late { type filter hook prerouting priority 0; ct state new counter
		}
	}`, "nft", "-f", "-")
	group := &net.UDPAddr{IP: net.IPv4(224, 1, 1, 1), Port: 5000}
	err := network.Pod.Do(func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		receiver, err := net.ListenMulticastUDP("udp4", device, group)
		if err != nil {
			return err
		}
		defer receiver.Close()
		sender, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 244, 1, 5)}, group)
		if err != nil {
			return err
		}
		defer sender.Close()
		if err := loopBack(sender); err != nil {
			return err
		}
		if _, err := sender.Write([]byte("x")); err != nil {
			return err
		}
		_, _, err = receiver.ReadFrom(make([]byte, 8))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	live := readLive(t, network.Pod)
	early := &live.Tables[0].Chains[0].Rules[0]
	if early.Hits.Packets != 1 {
		t.Errorf("the kernel has counted %d packets with a connection, want 1", early.Hits.Packets)
	}
	early.Actions = append(early.Actions, rules.Drop)
	const copied = "in udp 10.244.1.5:4000 > 224.1.1.1:5000 dev eth0 status confirmed " +
		"dst-type multicast copy"
	if got := diff.Explain(live, parsed(t, copied)).Outcome; !got.Dropped {
		t.Errorf("the model: %s, want: dropped", got)
	}
	r := diff.Decide(diff.Side{Ruleset: *live}, diff.Side{}, diff.Options{})
	if r.StrictVerdict() != diff.Different {
		t.Errorf("a rule that drops copies, compared with no rules: %s, want %s", r.StrictVerdict(),
			diff.Different)
	}
}

// loopBack makes the host itself receive the multicast packets that the socket sends.
func loopBack(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1)
	})
	return errors.Join(err, setErr)
}

// TestOwnerMatchesOfKernelSockets verifies the fact KernelSocketHasNoOwner: a reset that the TCP
// stack sends has a socket without an owner. Each rule that matches the reset sets another bit of
// the reset's mark.
func TestOwnerMatchesOfKernelSockets(t *testing.T) {
	for _, p := range []kerneltest.Program{legacy, iptablesNFT} {
		t.Run(string(p), func(t *testing.T) {
			ns := netnstest.New(t)
			program := map[kerneltest.Program]string{
				legacy:      "iptables-legacy",
				iptablesNFT: "iptables-nft",
			}[p]
			for _, match := range [][]string{
				{"--socket-exists", "-j", "MARK", "--or-mark", "1"},
				{"!", "--socket-exists", "-j", "MARK", "--or-mark", "2"},
				{"--uid-owner", "0-4294967294", "-j", "MARK", "--or-mark", "4"},
				{"!", "--uid-owner", "5", "-j", "MARK", "--or-mark", "8"},
				{"!", "--uid-owner", "5", "--socket-exists", "-j", "MARK", "--or-mark", "16"},
				{"!", "--uid-owner", "5", "!", "--gid-owner", "6", "-j", "MARK", "--or-mark", "32"},
				{"--uid-owner", "5", "!", "--gid-owner", "6", "-j", "MARK", "--or-mark", "64"},
			} {
				istiotest.Run(t, ns, "", program, append([]string{
					"-t", "mangle", "-A", "OUTPUT", "-p", "tcp", "--tcp-flags", "RST", "RST",
					"-m", "owner",
				}, match...)...)
			}
			istiotest.Run(t, ns, `table ip native {
				chain c { type filter hook output priority -140
				tcp flags & rst == rst meta skuid != 5 counter meta mark set meta mark or 128
				tcp flags & rst == rst meta skgid >= 0 counter meta mark set meta mark or 256
				}
			}`, "nft", "-f", "-")
			err := ns.Do(func() error {
				c, err := net.Dial("tcp4", "127.0.0.1:81")
				if err == nil {
					return c.Close()
				}
				return err
			})
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("dial: %v, want a reset", err)
			}
			live := readLive(t, ns)
			const want = 1 | 8 | 16 | 32
			if kernel := matchedMarks(live); kernel != want {
				t.Errorf("the kernel: rules that match set the bits %#x, want %#x", kernel, want)
			}
			const reset = "out tcp 127.0.0.1:81 > 127.0.0.1:4000 kernel-socket state established " +
				"reply flags rst,ack"
			got := diff.Explain(live, parsed(t, reset)).Outcome
			if got.Mark != want || got.Undecided != "" {
				t.Errorf("the model: %s, want mark %#x", got, want)
			}
		})
	}
}

// matchedMarks returns the bits that the rules with hits set in the mark.
func matchedMarks(rs *rules.Ruleset) uint32 {
	found := uint32(0)
	for _, table := range rs.Tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				for _, a := range r.Actions {
					if set, ok := a.(rules.SetMark); ok && r.Hits.Packets > 0 {
						found |= set.Value
					}
				}
			}
		}
	}
	return found
}

// readLive returns the rules of the namespace.
func readLive(t *testing.T, ns *netns.NS) *rules.Ruleset {
	t.Helper()
	live, err := compat.ReadLive(ns, compat.OriginAll)
	if err != nil {
		t.Fatal(err)
	}
	return &live.Ruleset
}

// parsed returns the packet that the text describes.
func parsed(t *testing.T, text string) rules.Packet {
	t.Helper()
	p, err := rules.ParsePacket(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStatesOfICMPMessagesFollowTheirTypes verifies the fact ICMPStateFollowsType. It sends
// messages of each ICMP type, each time from a new socket: messages that quote a packet of a
// connection or its reply, and messages without a quoted packet. The kernel answers some of the
// messages.
func TestStatesOfICMPMessagesFollowTheirTypes(t *testing.T) {
	for _, tc := range []struct {
		family, network, address, protocol, requests, answers, errors string
	}{
		{"ip", "ip4:1", "127.0.0.1", "icmp", "8, 13, 15, 17", "0, 14, 16, 18", "3, 4, 5, 11, 12"},
		{"ip6", "ip6:58", "::1", "icmpv6", "128, 139", "129, 140", "0-127"},
	} {
		t.Run(tc.family, func(t *testing.T) {
			ns := netnstest.New(t)
			requests := []string{"!= {" + tc.requests + "}", "{" + tc.requests + "}"}
			answers := []string{"!= {" + tc.answers + "}", "{" + tc.answers + "}"}
			errors := []string{"!= {" + tc.errors + "}", "{" + tc.errors + "}"}
			var text strings.Builder
			fmt.Fprintf(&text, "table %s a { chain output { type filter hook output priority 0\n",
				tc.family)
			for i := range 2 {
				fmt.Fprintf(&text, `%[1]s type %[2]s ct state new counter
					%[1]s type %[2]s ct state established ct direction original counter
					%[1]s type %[3]s ct state established ct direction reply counter
					%[1]s type %[4]s ct state related ct direction original counter
					%[1]s type %[4]s ct state related ct direction reply counter
				`, tc.protocol, requests[i], answers[i], errors[i])
			}
			text.WriteString("}\n}")
			istiotest.Run(t, ns, text.String(), "nft", "-f", "-")
			from := listenUDP(t, ns, net.JoinHostPort(tc.address, "4000"))
			to := listenUDP(t, ns, net.JoinHostPort(tc.address, "9"))
			if _, err := from.WriteTo([]byte("x"), to.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			address := netip.MustParseAddr(tc.address)
			err := ns.Do(func() error {
				for _, quoted := range [][]byte{
					nil, nil, udpHeaders(address, 4000, 9), udpHeaders(address, 9, 4000),
				} {
					for i := range 256 {
						c, err := net.Dial(tc.network, tc.address)
						if err != nil {
							return err
						}
						if _, err := c.Write(icmpMessage(byte(i), quoted)); err != nil {
							return fmt.Errorf("send type %d: %w", i, err)
						}
						_ = c.Close()
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			// The first five rules match messages in a state that their type must not have.
			requireMatches(t, ns, 5)
		})
	}
}

// icmpMessage returns an ICMP message of the type, with the type as its identifier, that quotes a
// packet.
func icmpMessage(messageType byte, quoted []byte) []byte {
	message := append([]byte{messageType, 0, 0, 0, 0, messageType, 0, 1}, quoted...)
	setICMPChecksum(message)
	return message
}

// setICMPChecksum sets the checksum of an ICMP message with an even length. The kernel sets the
// checksum of ICMPv6 messages.
func setICMPChecksum(message []byte) {
	var sum uint32
	for i := 0; i < len(message); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(message[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum+sum>>16))
}

// udpHeaders returns the headers of a UDP packet that an address sends to itself.
func udpHeaders(a netip.Addr, from, to uint16) []byte {
	var ip []byte
	if a.Is4() {
		ip = []byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	} else {
		ip = []byte{0x60, 0, 0, 0, 0, 9, unix.IPPROTO_UDP, 64}
	}
	ip = append(append(ip, a.AsSlice()...), a.AsSlice()...)
	ip = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(ip, from), to)
	return append(ip, 0, 9, 0, 0)
}
