package validation

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// A network looks up routes and interfaces of a namespace through one socket.
type network struct {
	ns     *netns.NS
	handle *netlink.Handle
}

func openNetwork(ns *netns.NS) (*network, error) {
	handle, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &network{ns, handle}, nil
}

func (n *network) close() { n.handle.Close() }

// route returns the source address and the device for a destination.
func (n *network) route(to netip.Addr) (source netip.Addr, device string, err error) {
	r, err := n.lookup(to)
	if err != nil {
		return netip.Addr{}, "", err
	}
	// The route may not contain a source address.
	source, err = n.source(to)
	if err != nil {
		return netip.Addr{}, "", err
	}
	return source, n.interfaceName(r.LinkIndex), nil
}

// isOnLink reports whether a unicast route without a gateway leads to the destination.
func (n *network) isOnLink(to netip.Addr) bool {
	r, err := n.lookup(to)
	return err == nil && r.Type == unix.RTN_UNICAST && r.Gw == nil && r.Via == nil
}

// lookup returns the kernel's route to the destination.
func (n *network) lookup(to netip.Addr) (netlink.Route, error) {
	found, err := n.handle.RouteGet(to.AsSlice())
	if err == nil && len(found) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return netlink.Route{}, err
	}
	return found[0], nil
}

// source returns the source address that the kernel chooses for the destination.
func (n *network) source(to netip.Addr) (source netip.Addr, err error) {
	err = n.ns.Do(func() error {
		fd, err := socket.New(rules.FamilyOf(to), rules.UDP)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		// Connecting a datagram socket sends nothing.
		if err := socket.Connect(fd, netip.AddrPortFrom(to, domainPort)); err != nil {
			return err
		}
		source = socket.LocalAddr(fd).Addr()
		return nil
	})
	return source, err
}

// device returns the name of the interface with the address, or eth0.
func (n *network) device(own netip.Addr) string {
	addrs, err := n.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return defaultDevice
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == own {
			return n.interfaceName(a.LinkIndex)
		}
	}
	return defaultDevice
}

const defaultDevice = "eth0"

// interfaceName returns the name of the interface with the index, or eth0 if it is unknown.
func (n *network) interfaceName(index int) string {
	link, err := n.handle.LinkByIndex(index)
	if err != nil {
		return defaultDevice
	}
	return link.Attrs().Name
}

// mayBeTransparent reports whether this process may create transparent sockets in the namespace.
func mayBeTransparent(ns *netns.NS) bool {
	return ns.Do(func() error {
		fd, err := socket.New(rules.IPv4, rules.TCP, socket.Transparent(rules.IPv4))
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}) == nil
}
