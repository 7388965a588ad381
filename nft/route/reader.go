package route

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// maxObjects is the maximum number of policy rules, of addresses, and of routes in the tables that
// policy rules look up. maxRoutes is the maximum number of routes of all tables, of which only a
// few are kept. A process of the pod can add any number, and could exhaust the time and the memory
// of the reader. They are variables for tests.
var (
	maxObjects = 10_000
	maxRoutes  = 1 << 20
)

// tooMany returns the error for a number of objects that exceeds a limit.
func tooMany(objects string, limit int) error {
	return fmt.Errorf("the namespace has more than %d %s", limit, objects)
}

// A reader reads the routing of a namespace. It lists each table at most once.
type reader struct {
	*netlink.Handle
	policyRules []foundRule
	// hasPassthrough reports whether lo has [rules.PassthroughIPv6].
	hasPassthrough bool
	tables         map[localRoute]table
	listed         int // routes in tables
}

// A table contains the routes of a table in one family.
type table struct {
	hasRoute bool            // the local default route exists
	others   []netlink.Route // the other routes
}

// openReader opens a reader that has read the policy rules. The caller must close it.
func openReader(ns *netns.NS) (*reader, error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	if err := r.readPolicyRules(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// newReader opens a reader without policy rules. The caller must close it.
func newReader(ns *netns.NS) (*reader, error) {
	r := &reader{tables: map[localRoute]table{}}
	err := ns.Do(func() (err error) {
		if r.hasPassthrough, err = checkPolicyRules(); err != nil {
			return err
		}
		r.Handle, err = (*netns.NS)(nil).Netlink(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// readPolicyRules reads the policy rules. Call it once, before the routes are read.
func (r *reader) readPolicyRules() (err error) {
	r.policyRules, err = readRules(r.Handle)
	// With strict checking the kernel lists only the routes of the requested table. Before Linux
	// 4.20 it lists all routes, and package netlink selects them. The option would make the kernel
	// reject package netlink's request for policy rules.
	_ = r.SetStrictCheck(true)
	return err
}

// checkPolicyRules returns an error if the namespace of the thread has too many policy rules, and
// reports whether lo has [rules.PassthroughIPv6].
func checkPolicyRules() (hasPassthrough bool, err error) {
	q, err := newFastCheck(rules.Routing{})
	if err != nil {
		return false, err
	}
	defer q.close()
	found := 0
	_, err = nlmsg.Exchange(q.fd, q.buf[:], queryRequest(), func(m nlmsg.Message) error {
		switch m.Type {
		case unix.RTM_NEWADDR:
			hasPassthrough = true
		case unix.NLMSG_ERROR:
			status, err := m.Status()
			// EADDRNOTAVAIL: lo does not have the address. EAFNOSUPPORT and EOPNOTSUPP: the kernel
			// does not support IPv6.
			if err != nil || slices.Contains([]unix.Errno{
				unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EOPNOTSUPP,
			}, status.Errno) {
				return err
			}
			return fmt.Errorf("query the address %s: %w", rules.PassthroughIPv6(), status.Errno)
		case unix.RTM_NEWRULE:
			if found++; found > maxObjects {
				return tooMany("policy rules", maxObjects)
			}
		}
		return nil
	})
	return hasPassthrough, err
}

// table returns the routes in the table of a local route.
func (r *reader) table(own localRoute) (table, error) {
	if t, ok := r.tables[own]; ok {
		return t, nil
	}
	routes, err := own.list(r.Handle)
	if err != nil {
		return table{}, err
	}
	if r.listed += len(routes); r.listed > maxObjects {
		return table{}, tooMany("routes in the tables of policy rules", maxObjects)
	}
	t := table{others: slices.DeleteFunc(routes, own.equals)}
	t.hasRoute = len(t.others) < len(routes)
	r.tables[own] = t
	return t, nil
}

// listRoutes returns the routes of a table.
func listRoutes(h *netlink.Handle, f rules.Family, table uint32) ([]netlink.Route, error) {
	return listAll("routes", func() (routes []netlink.Route, err error) {
		tooLong := false
		err = forEachRoute(h, f, table, func(r netlink.Route) bool {
			if tooLong = len(routes) == maxObjects; !tooLong {
				routes = append(routes, r)
			}
			return !tooLong
		})
		if tooLong {
			return nil, tooMany(fmt.Sprintf("routes in table %d", table), maxObjects)
		}
		return routes, err
	})
}

// forEachRoute calls visit with the routes of a table, or of all tables if table is
// RT_TABLE_UNSPEC, until visit returns false. Package netlink then receives and discards the rest.
func forEachRoute(
	h *netlink.Handle, f rules.Family, table uint32, visit func(netlink.Route) bool,
) error {
	err := h.RouteListFilteredIter(addressFamily(f), &netlink.Route{Table: int(table)},
		netlink.RT_FILTER_TABLE, visit)
	if errors.Is(err, unix.ENOENT) {
		return nil // with strict checking: the table does not exist
	}
	return err
}
