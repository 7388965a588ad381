package kerneltest_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRulesMatchFragmentsUnlessTheKernelReassembles verifies that rules match fragments only if
// nothing makes the kernel reassemble packets, if the chain runs before the reassembly at priority
// -400, or if the packet was sent untracked over lo. Package diff predicts this.
func TestRulesMatchFragmentsUnlessTheKernelReassembles(t *testing.T) {
	const (
		port    = "tcp dport 80 counter\n"
		tracks  = "type filter hook prerouting priority 0;\nct state new counter\n"
		notrack = "type filter hook output priority -300;\nnotrack\n"
	)
	for _, tc := range []struct {
		name, hook, rule string
		// before is a chain that is registered earlier.
		before string
		meets  bool // whether rules meet fragments
	}{
		{name: "nothing reassembles", hook: "prerouting priority -300", rule: port, meets: true},
		{
			name: "nothing reassembles at output", hook: "output priority -300", rule: port,
			meets: true,
		},
		{
			name: "conntrack reassembles", hook: "prerouting priority -300",
			rule: port + "ct state new counter\n",
		},
		{
			name: "conntrack reassembles at output", hook: "output priority -300",
			rule: port + "ct state new counter\n",
		},
		{
			name: "a chain directly after the reassembly", hook: "output priority -399",
			rule: port + "ct state new counter\n",
		},
		{
			name: "a chain before the reassembly", hook: "output priority -401",
			rule: port + "ct state new counter\n", meets: true,
		},
		{
			name: "a chain at the priority of the reassembly, registered later",
			hook: "prerouting priority -400", rule: port, before: tracks, meets: true,
		},
		{
			name: "a zone reassembles", hook: "prerouting priority -300",
			rule: port + "ct zone set 1\n",
		},
		{
			name: "notrack alone does not reassemble", hook: "prerouting priority -300",
			rule: port + "tcp dport 81 notrack\n", meets: true,
		},
		{
			name: "packets that are sent untracked over lo are not reassembled",
			hook: "prerouting priority -150",
			rule: port + "ct state new counter\n", before: notrack, meets: true,
		},
		{
			name: "a transparent proxy reassembles", hook: "prerouting priority -150",
			rule: port + "meta l4proto tcp tproxy to :15001\n",
		},
		{
			name: "the lookup of a socket does not reassemble", hook: "prerouting priority -150",
			rule: port + "socket transparent 1 counter\n", meets: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			const countFragments = "ip frag-off & 0x1fff != 0 counter\n"
			if tc.before != "" {
				istiotest.Run(t, ns, "table ip b {\nchain c {\n"+tc.before+"}\n}\n",
					"nft", "-f", "-")
			}
			hook := "type filter hook " + tc.hook + ";\n"
			istiotest.Run(t, ns, "table ip a {\nchain c {\n"+hook+countFragments+tc.rule+"}\n}\n",
				"nft", "-f", "-")
			if err := ns.Do(sendFragments); err != nil {
				t.Fatal(err)
			}
			live, err := compat.ReadLive(ns, compat.OriginNFT)
			if err != nil {
				t.Fatal(err)
			}
			hits := firstChain(live, "a")[0].Hits.Packets
			if (hits > 0) != tc.meets {
				t.Errorf("the kernel: %d fragments in the chain, want some: %t", hits, tc.meets)
			}
			if got := diff.MeetsFragments(&live.Ruleset, rules.IPv4); got != tc.meets {
				t.Errorf("MeetsFragments of IPv4: %t, want %t", got, tc.meets)
			}
			if diff.MeetsFragments(&live.Ruleset, rules.IPv6) {
				t.Error("MeetsFragments of IPv6: true for a ruleset of IPv4, want false")
			}
		})
	}
}

// sendFragments sends the two fragments of a packet over lo.
func sendFragments() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	to := netip.AddrFrom4([4]byte{127, 0, 0, 1}).As4()
	const length, moreFragments = 64, 1 << 13
	for _, offset := range []uint16{moreFragments, length / 8} {
		packet := make([]byte, 20+length)
		packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(packet[4:], 7) // identification
		binary.BigEndian.PutUint16(packet[6:], offset)
		copy(packet[12:], to[:])
		copy(packet[16:], to[:])
		if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to}); err != nil {
			return os.NewSyscallError("sendto", err)
		}
	}
	return nil
}
