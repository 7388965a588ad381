package machine

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// configureNetwork creates the interface eth0 with the addresses and routes, and enables
// forwarding. Packets to other addresses are rejected immediately, because no route matches them.
func configureNetwork(addresses, routes []string) error {
	for _, name := range []string{
		"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/default/forwarding",
	} {
		if err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0); err != nil &&
			!os.IsNotExist(err) {
			return err
		}
	}
	link := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "nowhere"}
	link.Name = "eth0"
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("make eth0: %w", err)
	}
	for _, name := range []string{"lo", "nowhere", "eth0"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		// Duplicate address detection takes time, and no other host can have the address.
		address.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	for _, r := range routes {
		to, err := netlink.ParseIPNet(r)
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: to}); err != nil {
			return fmt.Errorf("add route %s: %w", r, err)
		}
	}
	return nil
}
