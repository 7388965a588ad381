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
	h, err := open(ns)
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
	return len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL, nil
}
