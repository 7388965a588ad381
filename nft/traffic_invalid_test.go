package nft_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A packetPair contains two packets of one protocol: one that is invalid for conntrack, and a valid
// one.
type packetPair struct {
	name           string
	protocol       rules.Protocol
	invalid, valid []byte
}

// excludedPort is excluded from capture, so that packets to it have the same outcome in every mode.
const excludedPort = 15020

// packetPairs contains the pairs for IPv4, then the pairs for IPv6.
var packetPairs = [2][]packetPair{
	{
		{"TCP without flags", rules.TCP, tcpHeader(0), tcpHeader(rules.SYN)},
		{"an echo reply without a request", rules.ICMP, echo(0), echo(8)},
	},
	{
		{"TCP without flags", rules.TCP, tcpHeader(0), tcpHeader(rules.SYN)},
		{"an echo reply without a request", rules.ICMPv6, echo(129), echo(128)},
	},
}

func TestTrafficDropInvalid(t *testing.T) {
	t.Parallel()
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		for _, drop := range []bool{false, true} {
			name := map[bool]string{false: "kept", true: "dropped"}[drop]
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := startNetwork(t, testbed.Options{}, mode, nil)
				r := sidecar(mode)
				r.DropInvalid = drop
				rs := applyRedirect(t, b, r)
				for i, addr := range []netip.Addr{testbed.PodIP4, testbed.PodIP6} {
					for _, pair := range packetPairs[i] {
						if predicted := pair.predict(&rs, addr); predicted.Dropped != drop {
							t.Errorf("%s to %s: predicted %s, want dropped: %t", pair.name, addr,
								predicted, drop)
						}
						if arrived := pair.send(t, b, addr, !drop); arrived == drop {
							t.Errorf("%s to %s: the invalid packet arrived: %t, want %t", pair.name,
								addr, arrived, !drop)
						}
					}
				}
				checkCalls(t, b, rs, mode, defaultCalls[:4])
			})
		}
	}
}

// predict returns the outcome of the invalid packet according to the model.
func (p packetPair) predict(rs *rules.Ruleset, to netip.Addr) rules.Outcome {
	from := testbed.NeighborIP4
	if to.Is6() {
		from = testbed.NeighborIP6
	}
	return diff.Explain(rs, rules.Packet{
		Hook: rules.Prerouting, InInterface: "eth0", Protocol: p.protocol, State: rules.Invalid,
		Source: netip.AddrPortFrom(from, 5555), Destination: netip.AddrPortFrom(to, excludedPort),
	}).Outcome
}

// send sends the invalid packet and then the valid one to the pod, and reports whether the invalid
// packet arrived. expected reports whether the invalid packet should arrive. If so, send waits for
// both packets in any order. Otherwise send waits only until the valid packet arrives.
func (p packetPair) send(
	t *testing.T, b *testbed.Network, to netip.Addr, expected bool,
) (arrived bool) {
	t.Helper()
	in := rawSocket(t, b.Pod, to, p.protocol)
	out := rawSocket(t, b.Neighbor, to, p.protocol)
	for _, packet := range [][]byte{p.invalid, p.valid} {
		sendRaw(t, out, to, p.protocol, packet)
	}
	if err := in.SetReadDeadline(time.Now().Add(callTimeout)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	for validArrived := false; !arrived || !validArrived; {
		n, err := in.Read(buf)
		if err != nil {
			t.Fatalf("%s to %s: %v", p.name, to, err)
		}
		packet := buf[:n]
		if to.Is4() {
			packet = packet[int(packet[0]&0xf)*4:] // raw IPv4 sockets receive the IP header too
		}
		switch {
		case p.resembles(packet, p.invalid):
			arrived = true
		case p.resembles(packet, p.valid):
			validArrived = true
		}
		if validArrived && !expected {
			break
		}
	}
	return arrived
}

// resembles reports whether got has the source port and the flags of a TCP packet that was sent, or
// the type of an ICMP message that was sent.
func (p packetPair) resembles(got, sent []byte) bool {
	if p.protocol == rules.TCP {
		return binary.BigEndian.Uint16(got) == 5555 && got[13] == sent[13]
	}
	return got[0] == sent[0]
}

// rawSocket opens a raw socket of the address's family in the namespace.
func rawSocket(t *testing.T, ns *netns.NS, to netip.Addr, protocol rules.Protocol) *os.File {
	t.Helper()
	family := unix.AF_INET
	if to.Is6() {
		family = unix.AF_INET6
	}
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			int(protocol))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "raw")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// sendRaw sends a copy of the packet with its checksum.
func sendRaw(t *testing.T, f *os.File, to netip.Addr, protocol rules.Protocol, packet []byte) {
	t.Helper()
	packet = slices.Clone(packet)
	var dst unix.Sockaddr
	from, checksumOffset := testbed.NeighborIP4, 2
	if protocol == rules.TCP {
		checksumOffset = 16
	}
	var pseudo []byte
	if to.Is6() {
		from, dst = testbed.NeighborIP6, &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		dst = &unix.SockaddrInet4{Addr: to.As4()}
	}
	if protocol != rules.ICMP {
		pseudo = append(append(from.AsSlice(), to.AsSlice()...), 0, byte(protocol), 0,
			byte(len(packet)))
	}
	binary.BigEndian.PutUint16(packet[checksumOffset:], checksum(pseudo, packet))
	if err := unix.Sendto(int(f.Fd()), packet, 0, dst); err != nil {
		t.Fatal(err)
	}
}

// checksum returns the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for ; len(p) > 0; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// tcpHeader returns a header with source port 5555 and the flags.
func tcpHeader(flags rules.TCPFlags) []byte {
	h := make([]byte, 20)
	binary.BigEndian.PutUint16(h, 5555)
	binary.BigEndian.PutUint16(h[2:], excludedPort)
	h[12], h[13] = 5<<4, byte(flags)
	binary.BigEndian.PutUint16(h[14:], 1024) // window
	return h
}

// echo returns an ICMP echo request or reply, depending on the message type.
func echo(messageType byte) []byte { return []byte{messageType, 0, 0, 0, 0x12, 0x34, 0, 1} }
