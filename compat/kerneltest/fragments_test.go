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

// TestFragments verifies that rules match fragments only if nothing makes the kernel reassemble
// packets, or in chains before priority -400, and that package diff predicts this.
func TestFragments(t *testing.T) {
	const port = "tcp dport 80 counter\n"
	for _, tc := range []struct {
		name, hook, rule string
		meets            bool
	}{
		{"nothing reassembles", "prerouting priority -300", port, true},
		{"nothing reassembles at output", "output priority -300", port, true},
		{
			"conntrack reassembles", "prerouting priority -300", port + "ct state new counter\n",
			false,
		},
		{
			"conntrack reassembles at output", "output priority -300",
			port + "ct state new counter\n", false,
		},
		{
			"a chain right after reassembly", "output priority -399",
			port + "ct state new counter\n", false,
		},
		{
			"a chain before reassembly", "output priority -401", port + "ct state new counter\n",
			true,
		},
		{"a zone reassembles", "prerouting priority -300", port + "ct zone set 1\n", false},
		{
			"notrack alone does not reassemble", "prerouting priority -300",
			port + "tcp dport 81 notrack\n", true,
		},
		{
			"a transparent proxy reassembles", "prerouting priority -150",
			port + "meta l4proto tcp tproxy to :15001\n", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			const seen = "ip frag-off & 0x1fff != 0 counter\n"
			hook := "type filter hook " + tc.hook + ";\n"
			istiotest.Run(t, ns, "table ip a {\nchain c {\n"+hook+seen+tc.rule+"}\n}\n", "nft",
				"-f", "-")
			if err := ns.Do(sendFragment); err != nil {
				t.Fatal(err)
			}
			live, err := compat.ReadLive(ns, compat.OriginNFT)
			if err != nil {
				t.Fatal(err)
			}
			hits := live.Ruleset.Tables[0].Chains[0].Rules[0].Hits.Packets
			if (hits > 0) != tc.meets {
				t.Errorf("the kernel: %d fragments in the chain, want some: %t", hits, tc.meets)
			}
			if got := diff.MeetsFragments(&live.Ruleset, rules.IPv4); got != tc.meets {
				t.Errorf("rules may match fragments: %t, want %t", got, tc.meets)
			}
			if diff.MeetsFragments(&live.Ruleset, rules.IPv6) {
				t.Error("IPv4 rules may match IPv6 fragments")
			}
		})
	}
}

// sendFragment sends the last fragment of a packet over lo.
func sendFragment() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	to := netip.AddrFrom4([4]byte{127, 0, 0, 1}).As4()
	packet := make([]byte, 20+64)
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(packet[4:], 7) // identification
	binary.BigEndian.PutUint16(packet[6:], 64/8)
	copy(packet[12:], to[:])
	copy(packet[16:], to[:])
	return os.NewSyscallError("sendto", unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to}))
}
