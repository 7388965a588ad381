package route

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// maxObjects is the maximum number of policy rules, of addresses, of nexthop objects, and of routes
// in the tables that policy rules look up. maxRoutes is the maximum number of routes of all tables
// in one family, of which only a few are kept. A process of the pod can add any number, and could
// exhaust the time and the memory of the reader. They are variables for tests.
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
	conn
	policyRules []foundRule
	// hasPassthrough reports whether lo has [rules.PassthroughIPv6].
	hasPassthrough bool
	tables         map[localRoute]table
	listed         int // routes in tables
}

// A table holds the routes of one routing table in one family.
type table struct {
	hasRoute bool         // the local default route exists
	others   []foundRoute // the other routes
}

// openReader opens a reader that has read the policy rules. The caller must close it.
func openReader(ns *netns.NS) (*reader, error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	if err := r.readPolicyRules(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// newReader opens a reader that has not read the policy rules. The caller must close it.
func newReader(ns *netns.NS) (*reader, error) {
	r := &reader{tables: map[localRoute]table{}}
	err := ns.Do(func() (err error) {
		r.conn, err = openConn()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	r.checkStrictly()
	return r, nil
}

// openForChanges opens a reader like newReader, and a handle for changes of the routing. The caller
// must close both.
func openForChanges(ns *netns.NS) (r *reader, h *netlink.Handle, err error) {
	err = ns.Do(func() (err error) {
		if r, err = newReader(nil); err != nil {
			return err
		}
		if h, err = (*netns.NS)(nil).Netlink(unix.NETLINK_ROUTE); err != nil {
			r.close()
		}
		return err
	})
	return r, h, err
}

// readPolicyRules reads the policy rules, IPv4 before IPv6, and determines whether lo has
// [rules.PassthroughIPv6].
func (r *reader) readPolicyRules() (err error) {
	r.policyRules, err = listAll("policy rules", r.dumpPolicyRules)
	return err
}

// dumpPolicyRules lists the policy rules once, and sets r.hasPassthrough.
func (r *reader) dumpPolicyRules() ([]foundRule, error) {
	var v4, v6 []foundRule
	r.hasPassthrough = false
	err := r.exchange(queryRequest(), func(m nlmsg.Message) error {
		switch m.Type {
		case unix.RTM_NEWADDR:
			r.hasPassthrough = true
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
			rule, err := decodeRule(m.Body)
			switch {
			case err != nil:
				return err
			case len(v4)+len(v6) == maxObjects:
				return tooMany("policy rules", maxObjects)
			case rule.policy.Family == rules.IPv4:
				v4 = append(v4, rule)
			case rule.policy.Family == rules.IPv6:
				v6 = append(v6, rule)
			}
		}
		return nil
	})
	return append(v4, v6...), err
}

// table returns the routes in the table of a local route.
func (r *reader) table(own localRoute) (table, error) {
	if t, ok := r.tables[own]; ok {
		return t, nil
	}
	routes, err := own.list(r.conn)
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
func (c conn) listRoutes(f rules.Family, table uint32) ([]foundRoute, error) {
	return listAll("routes", func() (routes []foundRoute, err error) {
		err = c.forEachRoute(f, table, func(r foundRoute) error {
			if len(routes) == maxObjects {
				return tooMany(fmt.Sprintf("routes in table %d", table), maxObjects)
			}
			routes = append(routes, r)
			return nil
		})
		return routes, err
	})
}

// forEachRoute calls visit with the routes of a table, or of all tables if table is
// RT_TABLE_UNSPEC, until visit returns an error. More than maxRoutes routes are an error.
func (c conn) forEachRoute(
	f rules.Family, table uint32, visit func(foundRoute) error,
) error {
	visited := 0
	err := c.exchange(routesRequest(f, table), func(m nlmsg.Message) error {
		if m.Type != unix.RTM_NEWROUTE {
			return nil
		}
		r, err := decodeRoute(m.Body)
		switch {
		case err != nil:
			return err
		// Without strict checking, the kernel lists the routes of all tables, and cached routes. A
		// kernel without IPv6 lists the routes of IPv4 instead.
		case r.family != f, r.flags&unix.RTM_F_CLONED != 0,
			table != unix.RT_TABLE_UNSPEC && r.table != table:
			return nil
		}
		if visited++; visited > maxRoutes {
			return tooMany("routes", maxRoutes)
		}
		return visit(r)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil // with strict checking: the table does not exist
	}
	return err
}

// listAll returns the result of the first dump that is not interrupted. objects names the listed
// objects in errors.
func listAll[T any](objects string, read func() (T, error)) (T, error) {
	var none T
	found, err := dump.Retry(dump.Attempts, read)
	switch {
	case errors.Is(err, netlink.ErrDumpInterrupted):
		return none, fmt.Errorf("list %s: %d attempts: %w", objects, dump.Attempts, err)
	case err != nil:
		return none, fmt.Errorf("list %s: %w", objects, err)
	}
	return found, nil
}
