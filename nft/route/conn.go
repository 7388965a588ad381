package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// open returns a socket in ns, to be closed.
func open(ns *netns.NS) (h *netlink.Handle, err error) {
	// netlink.NewHandleAt would be faster by a change of threads (16 µs), but
	// takes a closed namespace for the current one, and needs privileges even
	// when ns is the current one.
	err = ns.Do(func() error {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	return h, nil
}

// dumpAttempts is how often a dump may start over because what it lists changed
// meanwhile. A change within the microseconds of a dump is rare, ten are not
// chance.
const dumpAttempts = 10

// dump returns the result of list, when that was not interrupted.
func dump[T any](what string, list func() ([]T, error)) ([]T, error) {
	for range dumpAttempts {
		result, err := list()
		switch {
		case err == nil:
			return result, nil
		case !errors.Is(err, netlink.ErrDumpInterrupted):
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
	}
	return nil, fmt.Errorf("list %s: %d attempts: %w", what, dumpAttempts, netlink.ErrDumpInterrupted)
}

// addressOf returns the interface's own address, which exists in IP only.
func addressOf(a netlink.Addr) (netip.Addr, bool) {
	if a.IPNet == nil {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(a.IP)
}
