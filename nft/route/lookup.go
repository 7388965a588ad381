package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A ReceivedPacket is a packet that an interface of the namespace has received, as it is after
// prerouting.
type ReceivedPacket struct {
	Interface           string
	Source, Destination netip.Addr
	Mark                uint32
}

// Delivers reports whether the routes of the namespace deliver the packet to this host. It asks the
// kernel, which applies the policy rules of all owners. It returns false for a packet that the
// kernel drops, for example because of its source.
func Delivers(ns *netns.NS, p ReceivedPacket) (bool, error) {
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer h.Close()
	routes, err := h.RouteGetWithOptions(p.Destination.AsSlice(), &netlink.RouteGetOptions{
		Iif: p.Interface, SrcAddr: p.Source.AsSlice(), Mark: p.Mark,
	})
	for _, dropped := range []unix.Errno{
		unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, // no route, or a route of type prohibit
		unix.EINVAL, unix.EXDEV, // the source is invalid, or has no reverse path
	} {
		if errors.Is(err, dropped) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf(
			"look up the route from %s to %s with mark 0x%x, received by %s: %w",
			p.Source, p.Destination, p.Mark, p.Interface, err)
	}
	// If a local route has an encapsulation, the encapsulation receives the packets, not this host.
	return len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL && routes[0].Encap == nil, nil
}

// A SentPacket is a packet that a socket of the namespace sends.
type SentPacket struct {
	Source, Destination netip.Addr
	Mark                uint32
	UID                 *uint32 // nil if the socket has no user
}

// OutInterface returns the name of the interface by which the routes of the namespace send the
// packet. It asks the kernel, which applies the policy rules of all owners, except rules about
// protocols and ports. A source that is not an address of the namespace has no effect. The name is
// empty if there is no route.
func OutInterface(ns *netns.NS, p SentPacket) (string, error) {
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return "", err
	}
	defer h.Close()
	options := netlink.RouteGetOptions{SrcAddr: p.Source.AsSlice(), Mark: p.Mark, UID: p.UID}
	routes, err := h.RouteGetWithOptions(p.Destination.AsSlice(), &options)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH) {
		options.SrcAddr = nil // the kernel refuses a source that is not an address of the namespace
		routes, err = h.RouteGetWithOptions(p.Destination.AsSlice(), &options)
	}
	switch {
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look up the route from %s to %s with mark 0x%x: %w", p.Source,
			p.Destination, p.Mark, err)
	case len(routes) != 1 || routes[0].LinkIndex == 0:
		return "", nil
	}
	link, err := h.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("interface %d: %w", routes[0].LinkIndex, err)
	}
	return link.Attrs().Name, nil
}
