package istio

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// ReadRouting returns the routing of the namespace that redirection uses: policy rules that match a
// mark and select a table with a local route, and the address ::6 on lo. Equal policy rules are
// returned once. Every priority is [rules.PolicyPriority], because the kernel chooses the
// priorities of Istio's rules.
func ReadRouting(ns *netns.NS) (rules.Routing, error) {
	var found rules.Routing
	err := ns.Do(func() error {
		for _, f := range []struct {
			family rules.Family
			number int
		}{{rules.IPv4, unix.AF_INET}, {rules.IPv6, unix.AF_INET6}} {
			policies, err := readPolicies(f.family, f.number)
			if err != nil {
				return err
			}
			found.Policies = append(found.Policies, policies...)
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addrs, err := testbed.RetryDump(func() ([]netlink.Addr, error) {
			return netlink.AddrList(lo, unix.AF_INET6)
		})
		for _, a := range addrs {
			if a.IP.Equal(rules.PassthroughIPv6().AsSlice()) {
				found.LoopbackAddrs = append(found.LoopbackAddrs, rules.PassthroughIPv6())
			}
		}
		return err
	})
	if err != nil {
		return rules.Routing{}, fmt.Errorf("read the routing: %w", err)
	}
	return found, nil
}

// readPolicies returns the policy rules of a family that match a mark and select a table with a
// local route. number is the kernel's number of the family.
func readPolicies(f rules.Family, number int) ([]rules.PolicyRoute, error) {
	list, err := testbed.RetryDump(func() ([]netlink.Rule, error) {
		return netlink.RuleList(number)
	})
	if err != nil {
		return nil, err
	}
	var policies []rules.PolicyRoute
	seen := map[rules.PolicyRoute]bool{}
	for _, r := range list {
		p := rules.PolicyRoute{
			Family: f, Mark: r.Mark, Table: uint32(r.Table), Priority: rules.PolicyPriority,
		}
		if r.Mask != nil && *r.Mask != ^uint32(0) {
			p.Mask = *r.Mask
		}
		if r.Mark == 0 || seen[p] {
			continue
		}
		seen[p] = true
		routes, err := testbed.RetryDump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(number,
				&netlink.Route{Table: r.Table, Type: unix.RTN_LOCAL},
				netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		})
		if err != nil {
			return nil, err
		}
		if len(routes) > 0 {
			policies = append(policies, p)
		}
	}
	return policies, nil
}
