package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/internal/dump"
	"github.com/sluice-mesh/sluice/rules"
)

// dumpAttempts is the maximum number of attempts to dump a list without a concurrent change.
// Because a dump takes microseconds, ten interruptions mean continuous changes.
const dumpAttempts = 10

// listAll returns the result of the first dump that is not interrupted. objects names the elements
// of the list in errors.
func listAll[T any](objects string, read func() ([]T, error)) ([]T, error) {
	found, err := dump.Retry(dumpAttempts, read)
	switch {
	case errors.Is(err, netlink.ErrDumpInterrupted):
		return nil, fmt.Errorf("list %s: %d attempts: %w", objects, dumpAttempts, err)
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", objects, err)
	}
	return found, nil
}

// listRoutes returns the routes of a table, or of all tables if table is RT_TABLE_UNSPEC.
func listRoutes(h *netlink.Handle, f rules.Family, table uint32) ([]netlink.Route, error) {
	return listAll("routes", func() ([]netlink.Route, error) {
		return h.RouteListFiltered(addressFamily(f), &netlink.Route{Table: int(table)},
			netlink.RT_FILTER_TABLE)
	})
}

// listAddrs returns the addresses of all interfaces.
func listAddrs(h *netlink.Handle, f rules.Family) ([]netlink.Addr, error) {
	return listAll("addresses", func() ([]netlink.Addr, error) {
		return h.AddrList(nil, addressFamily(f))
	})
}

// localAddr returns the local address in a. It returns false if a contains no IP address.
func localAddr(a netlink.Addr) (netip.Addr, bool) {
	if a.IPNet == nil {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(a.IP)
}
