package kerneltest_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// arrivals contains packets that are sent to the pod, and the hooks that they reach.
var arrivals = []struct {
	fact           string // only for packets that do not arrive
	name, from, to string
	atPrerouting   bool // whether the packet reaches the prerouting hook
	atInput        bool // whether the packet reaches the input hook
}{
	{"", "an ordinary packet", "10.244.1.1", "10.244.1.5", true, true},
	{"LoopbackSourceIsDropped", "from IPv4 loopback", "127.0.0.1", "10.244.1.5", true, false},
	{
		"MulticastSourceIsDropped", "from an IPv4 multicast address", "224.0.0.1",
		"10.244.1.5", true, false,
	},
	{"", "for IPv4 loopback", "10.244.1.1", "127.0.0.1", true, false},
	{"", "an ordinary packet of IPv6", "fd00:10:244:1::1", "fd00:10:244:1::5", true, true},
	{
		"IPv6LoopbackIsDroppedEarly", "from IPv6 loopback", "::1",
		"fd00:10:244:1::5", false, false,
	},
	{"IPv6LoopbackIsDroppedEarly", "for IPv6 loopback", "fd00:10:244:1::1", "::1", false, false},
	{
		"MulticastSourceIsDropped", "from an IPv6 multicast address", "ff02::1",
		"fd00:10:244:1::5", false, false,
	},
}

// TestKernelDropsPacketsThatDecisionsExclude verifies that the packets that decisions exclude as
// impossible do not reach the rules, or at least not the input hook. Each packet has its own
// destination port.
func TestKernelDropsPacketsThatDecisionsExclude(t *testing.T) {
	pair := netnstest.NewPair(t)
	const control, redirected, redirectedTo = 1, 2, 3
	ports := []uint16{control, redirected, redirectedTo}
	portOf := func(i int) uint16 { return uint16(100 + i) } // of the ith packet of arrivals
	for i := range arrivals {
		ports = append(ports, portOf(i))
	}
	if _, err := nft.Apply(pair.Pod, countingRules(ports, redirected, redirectedTo)); err != nil {
		t.Fatal(err)
	}
	sender := newSender(t, pair)
	for i, tc := range arrivals {
		sender.send(netip.MustParseAddr(tc.from), netip.MustParseAddr(tc.to), portOf(i))
	}
	sender.send(pair.NeighborIP4, netip.MustParseAddr("127.0.0.1"), redirected)
	sender.send(pair.NeighborIP4, pair.PodIP4, control)
	hits := waitForHit(t, pair.Pod, control)
	for i, tc := range arrivals {
		port := portOf(i)
		atPrerouting, atInput := hits[fmt.Sprint("prerouting ", port)] == 1,
			hits[fmt.Sprint("input ", port)] == 1
		if atPrerouting != tc.atPrerouting || atInput != tc.atInput {
			t.Errorf("%s: reaches prerouting: %t, want %t; reaches input: %t, want %t", tc.name, atPrerouting,
				tc.atPrerouting, atInput, tc.atInput)
		}
		p := rules.Packet{
			Hook: rules.Prerouting, InInterface: "eth0", Protocol: rules.UDP,
			Source:      netip.AddrPortFrom(netip.MustParseAddr(tc.from), senderPort),
			Destination: netip.AddrPortFrom(netip.MustParseAddr(tc.to), port),
		}
		// Routing drops packets to 127.0.0.1 unless a rule has redirected them.
		if want := atInput || tc.to == "127.0.0.1"; diff.Possible(p) != want {
			t.Errorf("%s: diff.Possible is %t, want %t", tc.name, diff.Possible(p), want)
		}
	}
	if hits[fmt.Sprint("input ", redirectedTo)] != 1 {
		t.Error("a redirected packet to 127.0.0.1 has not reached the input hook")
	}
}

// countingRules returns rules that count the UDP packets to each port, before other rules and after
// routing. Another rule changes the destination port redirected to redirectedTo.
func countingRules(ports []uint16, redirected, redirectedTo uint16) rules.Ruleset {
	before := rules.Chain{
		Name: "prerouting", Base: &rules.Base{Hook: rules.Prerouting, Priority: -300},
	}
	afterRouting := rules.Chain{Name: "input", Base: &rules.Base{Hook: rules.Input}}
	nat := rules.Chain{
		Name: "nat", Base: &rules.Base{Type: rules.NAT, Hook: rules.Prerouting, Priority: -100},
	}
	nat.Rules = []rules.Rule{onPort(redirected, rules.RedirectTo{Port: redirectedTo})}
	for _, port := range ports {
		count := onPort(port, rules.Count{})
		before.Rules, afterRouting.Rules = append(before.Rules, count), append(afterRouting.Rules, count)
	}
	return rules.Ruleset{Tables: []rules.Table{{
		Name: rules.TableName, Chains: []rules.Chain{before, afterRouting, nat},
	}}}
}

// onPort returns a rule for the UDP packets to a port.
func onPort(port uint16, a rules.Action) rules.Rule {
	return rules.Rule{Actions: []rules.Action{a}, Matches: []rules.Match{
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}},
		rules.MatchPort{
			Side: rules.Destination, Ports: []rules.PortRange{{First: port, Last: port}},
		},
	}}
}

// waitForHit waits until the chain input has counted a packet to the port, and returns all counters
// by chain and port.
func waitForHit(t *testing.T, pod *netns.NS, port uint16) map[string]uint64 {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		rs, err := nft.Read(pod)
		if err != nil {
			t.Fatal(err)
		}
		hits := map[string]uint64{}
		for _, c := range rs.Tables[0].Chains {
			for _, r := range c.Rules {
				for _, m := range r.Matches {
					if m, ok := m.(rules.MatchPort); ok {
						hits[fmt.Sprint(c.Name, " ", m.Ports[0].First)] = r.Hits.Packets
					}
				}
			}
		}
		if hits[fmt.Sprint("input ", port)] > 0 {
			return hits
		}
	}
	t.Fatalf("no packet to port %d has arrived within a minute", port)
	return nil
}

// A sender sends packets with arbitrary headers from the neighbor to the pod.
type sender struct {
	t        *testing.T
	pair     netnstest.Pair
	fd4, fd6 int
}

// newSender returns a sender that can send until the test ends.
func newSender(t *testing.T, pair netnstest.Pair) sender {
	t.Helper()
	s := sender{t: t, pair: pair}
	open := func(domain int) (fd int) {
		err := pair.Neighbor.Do(func() (err error) {
			// The program writes the IP header of each packet.
			fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	s.fd4, s.fd6 = open(unix.AF_INET), open(unix.AF_INET6)
	return s
}

// senderPort is the source port of the packets.
const senderPort = 40000

// send sends a UDP packet, which is routed to the pod regardless of its header.
func (s sender) send(from, to netip.Addr, port uint16) {
	s.t.Helper()
	const udpLength, ipv4Length, hops = 8, 28, 64
	udp := binary.BigEndian.AppendUint16(nil, senderPort)
	udp = binary.BigEndian.AppendUint16(udp, port)
	udp = append(udp, 0, udpLength, 0, 0)
	var err error
	if from.Is4() {
		header := []byte{0x45, 0, 0, ipv4Length, 0, 0, 0, 0, hops, unix.IPPROTO_UDP, 0, 0}
		header = append(append(header, from.AsSlice()...), to.AsSlice()...)
		err = unix.Sendto(s.fd4, append(header, udp...), 0,
			&unix.SockaddrInet4{Addr: s.pair.PodIP4.As4()})
	} else {
		header := []byte{0x60, 0, 0, 0, 0, udpLength, unix.IPPROTO_UDP, hops}
		header = append(append(header, from.AsSlice()...), to.AsSlice()...)
		err = unix.Sendto(s.fd6, append(header, udp...), 0,
			&unix.SockaddrInet6{Addr: s.pair.PodIP6.As16()})
	}
	if err != nil {
		s.t.Fatalf("send a packet from %s to %s: %v", from, to, err)
	}
}
