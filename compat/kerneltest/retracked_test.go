package kerneltest_test

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// tcpPacket returns an IPv4 packet from 127.0.0.1:1000 to 127.0.0.1:80. The kernel sets the
// checksum of its IP header.
func tcpPacket(flags rules.TCPFlags, sequence uint32) []byte {
	loopback := []byte{127, 0, 0, 1}
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp[0:], 1000)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], sequence)
	tcp[12], tcp[13] = 5<<4, byte(flags)
	binary.BigEndian.PutUint16(tcp[14:], 1000) // window
	sum := uint32(unix.IPPROTO_TCP + len(tcp))
	for _, part := range [][]byte{loopback, loopback, tcp} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(tcp)))
	copy(ip[12:], loopback)
	copy(ip[16:], loopback)
	return append(ip, tcp...)
}

// sendRaw sends IPv4 packets to 127.0.0.1 from the namespace of the thread.
func sendRaw(packets ...[]byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, p := range packets {
		to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.Sendto(fd, p, 0, to); err != nil {
			return os.NewSyscallError("sendto", err)
		}
	}
	return nil
}

// TestInvalidPacketIsTrackedAgain verifies that conntrack runs again when a packet that is invalid
// at output arrives on lo. In another zone, the packet then begins a connection, and NAT may
// translate it. The test also verifies that the model reports the outcome of such a packet as
// undecided.
func TestInvalidPacketIsTrackedAgain(t *testing.T) {
	for _, tc := range []struct {
		name, zoneIn string
		isNew        bool
	}{
		{"no zone at prerouting", "", true},
		{"another zone at prerouting", "ct zone set 2", true},
		{"the same zone at prerouting", "ct zone set 1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Run(t, ns, `table ip a {
				chain c {
					type filter hook prerouting priority -50
					tcp dport 80 ct state invalid counter
					tcp dport 8080 counter
				}
				chain zoneOut { type filter hook output priority -300; tcp dport 80 ct zone set 1; }
				chain zoneIn { type filter hook prerouting priority -300; `+tc.zoneIn+`; }
				chain onlyInvalid { type filter hook output priority 0; ct state != { new, invalid } drop; }
				chain in { type filter hook prerouting priority -150; tcp flags syn drop; }
				chain nat { type nat hook prerouting priority -100; tcp dport 80 redirect to :8080; }
			}`, "nft", "-f", "-")
			// In the zone of the first packet, the ACK of its connection is invalid.
			err := ns.Do(func() error {
				return sendRaw(tcpPacket(rules.SYN, 0), tcpPacket(rules.ACK, 1))
			})
			if err != nil {
				t.Fatal(err)
			}
			live, err := compat.ReadLive(ns, compat.OriginNFT)
			if err != nil {
				t.Fatal(err)
			}
			read := firstChain(live, "a")
			invalid, translated := read[0].Hits.Packets > 0, read[1].Hits.Packets > 0
			if invalid == tc.isNew || translated != tc.isNew {
				t.Errorf("invalid on lo: %t, translated: %t; want the ACK to be new: %t", invalid,
					translated, tc.isNew)
			}
			p := out(0, rules.TCP, "127.0.0.1:1000", "127.0.0.1:80")
			p.OutInterface, p.State, p.Flags = "lo", rules.Invalid, rules.ACK
			outcome := diff.Explain(&live.Ruleset, p).Outcome
			if isUnknown := outcome.Undecided != ""; isUnknown != tc.isNew {
				t.Errorf("the model predicts %s, want an undecided outcome: %t", outcome, tc.isNew)
			}
		})
	}
}
