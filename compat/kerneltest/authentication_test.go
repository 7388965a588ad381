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

// TestOnlyLegacySkipsAuthenticationHeaders verifies the fact AuthenticationHeaderIsSkipped: for a
// packet with an authentication header, rules of ip6tables-legacy compare the protocol of the data
// after the header, and other rules compare the protocol number of the header itself.
func TestOnlyLegacySkipsAuthenticationHeaders(t *testing.T) {
	const (
		saved  = "*raw\n-A OUTPUT -p tcp\n-A OUTPUT -p ah\nCOMMIT\n"
		native = "table ip6 a {\nchain c {\ntype filter hook output priority -300;\n" +
			"meta l4proto tcp counter\nmeta l4proto ah counter\n}\n}\n"
		prefix = "ip6tables-"
	)
	var read [2]rules.Ruleset // of iptables-legacy, and of nftables
	for i, tc := range []struct {
		name, text string
		load       []string
		hits       [2]uint64 // of the comparisons with TCP and with AH
	}{
		{"iptables-legacy", saved, []string{prefix + "legacy-restore"}, [2]uint64{1, 0}},
		{"iptables-nft", saved, []string{prefix + "nft-restore"}, [2]uint64{0, 1}},
		{"nftables", native, []string{"nft", "-f", "-"}, [2]uint64{0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := netnstest.New(t)
			istiotest.Run(t, ns, tc.text, tc.load[0], tc.load[1:]...)
			if err := ns.Do(sendAuthenticated); err != nil {
				t.Fatal(err)
			}
			live, err := compat.ReadLive(ns, compat.OriginAll)
			if err != nil {
				t.Fatal(err)
			}
			chain := live.Ruleset.BaseChains(rules.Output)[0].Chain
			for j, want := range tc.hits {
				if got := chain.Rules[j].Hits.Packets; got != want {
					t.Errorf("the kernel: %s matches %d packets, want %d", &chain.Rules[j],
						got, want)
				}
			}
			read[min(i, 1)] = live.Ruleset
		})
	}
	if !diff.OmitsAuthenticationHeaders(&read[0], &read[1]) {
		t.Error("OmitsAuthenticationHeaders is false for rules of iptables-legacy and nftables, " +
			"want true")
	}
}

// sendAuthenticated sends a TCP segment with an authentication header over lo.
func sendAuthenticated() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	const header, authentication, segment = 40, 24, 20
	packet := make([]byte, header+authentication+segment)
	packet[0], packet[6], packet[7] = 0x60, unix.IPPROTO_AH, 64
	binary.BigEndian.PutUint16(packet[4:], authentication+segment)
	to := netip.IPv6Loopback().As16()
	copy(packet[8:], to[:])
	copy(packet[24:], to[:])
	// The length of an authentication header is in units of 4 bytes, minus 2.
	packet[header], packet[header+1] = unix.IPPROTO_TCP, authentication/4-2
	packet[header+authentication+12] = segment / 4 << 4
	return os.NewSyscallError("sendto", unix.Sendto(fd, packet, 0, &unix.SockaddrInet6{Addr: to}))
}
