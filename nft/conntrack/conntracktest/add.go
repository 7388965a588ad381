// Package conntracktest adds conntrack entries, for tests.
package conntracktest

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// AddTCP adds n entries of established TCP connections from different addresses in 11.0.0.0/8 to
// port 8080 of an IPv4 address.
func AddTCP(t testing.TB, ns *netns.NS, to netip.Addr, n int) {
	t.Helper()
	h, err := ns.Netlink(unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for i := range n {
		from := []byte{11, byte(i >> 16), byte(i >> 8), byte(i)}
		const protocol, established = unix.IPPROTO_TCP, 3
		flow := &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 3600,
			Forward: netlink.IPTuple{
				Protocol: protocol, SrcIP: from, SrcPort: 40000, DstIP: to.AsSlice(), DstPort: 8080,
			},
			Reverse: netlink.IPTuple{
				Protocol: protocol, SrcIP: to.AsSlice(), SrcPort: 8080, DstIP: from, DstPort: 40000,
			},
			ProtoInfo: &netlink.ProtoInfoTCP{State: established},
		}
		if err := h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow); err != nil {
			t.Fatalf("add conntrack entry %d: %v", i, err)
		}
	}
}
