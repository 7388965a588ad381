package netnstest

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// NewPod is like [New], but lo also has the address 10.0.0.7, because a pod has an address that is
// not a loopback address.
func NewPod(t testing.TB) *netns.NS {
	t.Helper()
	ns := New(t)
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(10, 0, 0, 7))})
	})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}
