package route

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Rule is a policy rule of a namespace.
type Rule struct {
	Family     rules.Family
	Priority   int
	Table      uint32
	Mark, Mask uint32 // Mark is not compared if Mask is 0
	// HasOthers reports whether the rule has a selector other than the mark, or an action other
	// than the lookup of the table.
	HasOthers bool
	// DropsAll reports whether the rule drops every packet for which no earlier rule finds a route.
	DropsAll bool
	Text     string // the rule in the syntax of the ip command
}

// Rules lists the policy rules of the namespace, IPv4 before IPv6. If the rules change at the same
// time, it does not try again, but returns a list that may lack rules, with
// [netlink.ErrDumpInterrupted]. More than 10,000 rules are an error.
func Rules(ns *netns.NS) ([]Rule, error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := r.dumpPolicyRules()
	var list []Rule
	for _, f := range found {
		list = append(list, Rule{
			Family: f.policy.Family, Priority: f.policy.Priority, Table: f.policy.Table,
			Mark: f.policy.Mark, Mask: f.mask, HasOthers: f.hasOthers,
			DropsAll: f.dropsAll(), Text: f.String(),
		})
	}
	return list, err
}

// A Route is a route of a namespace.
type Route struct {
	Family rules.Family
	Table  uint32
	// IsDefault reports whether the destination is any address, and IsLocalDefault whether the
	// route is the route of a policy route, without any further attribute.
	IsDefault, IsLocalDefault bool
	Text                      string // the route in the syntax of the ip command
}

// Routes lists the routes of all tables except main, local and default, IPv4 before IPv6. device
// returns the name of the interface with an index. If the routes change at the same time, Routes
// does not try again, but returns a list that may lack routes, with [netlink.ErrDumpInterrupted].
// More than 10,000 routes of these tables, or a million of all tables in one family, are an error.
func Routes(ns *netns.NS, device func(index int) string) (list []Route, err error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		if err := r.forEachRoute(family, unix.RT_TABLE_UNSPEC, func(f foundRoute) error {
			switch {
			case f.table >= unix.RT_TABLE_DEFAULT && f.table <= unix.RT_TABLE_LOCAL:
				return nil
			case len(list) == maxObjects:
				return tooMany("routes outside the tables main, local and default", maxObjects)
			}
			list = append(list, Route{
				Family: family, Table: f.table, IsDefault: f.destination.Bits() == 0,
				IsLocalDefault: localRoute{family, f.table}.equals(f), Text: f.format(device),
			})
			return nil
		}); err != nil {
			return list, err
		}
	}
	return list, nil
}

// InterfaceAddresses returns the addresses of the namespace's interfaces, by the index of the
// interface. If they change at the same time, it does not try again, but returns addresses that may
// be incomplete, with [netlink.ErrDumpInterrupted]. More than 10,000 addresses are an error.
func InterfaceAddresses(ns *netns.NS) (map[int][]netip.Addr, error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found := map[int][]netip.Addr{}
	err = r.forEachAddress(func(index int, a netip.Addr) {
		found[index] = append(found[index], a)
	})
	return found, err
}
