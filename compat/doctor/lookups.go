package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// RouteLookups contains answers of the kernel about the routes of packets. The kernel looks up the
// route of a packet from a local socket before the packet traverses the rules.
type RouteLookups struct {
	// Outbound are the answers about packets of the application to a host to which no special route
	// is expected, and Dropped the answers about packets that a route or policy rule may drop.
	Outbound []route.Answer
	Dropped  []DroppedLookup
	// Incomplete contains the families with too many such routes and policy rules to look up all.
	Incomplete []rules.Family
	// Local are the answers about addresses to which the namespace must deliver packets: the
	// addresses of its interfaces, those of the proxy's listeners, and the source address of the
	// proxy's IPv4 connections to the application.
	Local []route.Answer
}

// A DroppedLookup is an answer about packets to which a route or policy rule may apply that drops
// them.
type DroppedLookup struct {
	route.Answer
	Object string // the route or rule, in the syntax of the ip command
}

// readLookups asks the kernel for routes in the thread's namespace. device returns the name of the
// interface with an index. readLookups uses f.Interfaces.
func (f *Facts) readLookups(device func(index int) string) (err error) {
	toLocal := []netip.Addr{rules.PassthroughIPv4(), netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		addresses := f.podAddresses(family)
		if len(addresses) == 0 {
			continue
		}
		toLocal = append(toLocal, addresses[:min(len(addresses), maxSimilar)]...)
		outbound := route.Query{Destination: documentationAddr(family), UID: sampleID}
		answers, err := route.LookUp(nil, []route.Query{outbound}, device)
		if err != nil {
			return err
		}
		f.Lookups.Outbound = append(f.Lookups.Outbound, answers...)
		drops, err := listObjects(f, "routes", func() ([]route.Drop, error) {
			return route.Drops(nil, outbound, device)
		})
		if err != nil {
			return err
		}
		if len(drops) == route.MaxDrops {
			f.Lookups.Incomplete = append(f.Lookups.Incomplete, family)
		}
		var queries []route.Query
		for _, d := range drops {
			queries = append(queries, d.Query)
		}
		if answers, err = route.LookUp(nil, queries, device); err != nil {
			return err
		}
		for i, a := range answers {
			if a.Failure != 0 {
				f.Lookups.Dropped = append(f.Lookups.Dropped, DroppedLookup{a, drops[i].Text})
			}
		}
	}
	var queries []route.Query
	for _, a := range toLocal {
		queries = append(queries, route.Query{Destination: a, UID: sampleID})
	}
	f.Lookups.Local, err = route.LookUp(nil, queries, device)
	return err
}

// podAddresses returns the addresses of a family by which other hosts reach the namespace.
func (f *Facts) podAddresses(family rules.Family) (addresses []netip.Addr) {
	for _, i := range f.Interfaces {
		for _, a := range i.Addrs {
			if i.Name != lo && i.Up && rules.FamilyOf(a) == family && a.IsGlobalUnicast() &&
				a != rules.PassthroughIPv6() {
				addresses = append(addresses, a)
			}
		}
	}
	return addresses
}

// checkLookups reports packets that the kernel does not route as capture needs it.
func (d *diagnosis) checkLookups() {
	if len(d.Interrupted) == 0 {
		d.checkLocalLookups()
	}
	isCaptured := func(a route.Answer) bool {
		return d.redirect.IPv6 || rules.FamilyOf(a.Query.Destination) == rules.IPv4
	}
	found := similarFindings{}
	for _, a := range d.Lookups.Outbound {
		if isCaptured(a) {
			d.checkOutboundLookup(found, a)
		}
	}
	var reported []route.Query
	for _, a := range d.Lookups.Dropped {
		isReported := slices.ContainsFunc(slices.Concat(d.Lookups.Outbound, d.Lookups.Local),
			func(o route.Answer) bool { return o.Query == a.Query })
		if !isCaptured(a.Answer) || isReported || slices.Contains(reported, a.Query) {
			continue
		}
		reported = append(reported, a.Query)
		d.addSimilar(found, Warning,
			fmt.Sprintf("the kernel drops %s before the rules see them (%s); such packets match: %s", a.Query,
				a.Failure, a.Object), "remove it unless it must drop these packets")
	}
	d.addMore(found, "routes or policy rules like these")
	for _, family := range d.Lookups.Incomplete {
		d.add("routing", Warning,
			fmt.Sprintf("not all IPv%d routes and policy rules that may drop packets are known: there are %d or more",
				family, route.MaxDrops), "")
	}
}

// checkOutboundLookup reports that the application cannot connect to other hosts, or connects with
// a source address to which no answers return.
func (d *diagnosis) checkOutboundLookup(found similarFindings, a route.Answer) {
	family := rules.FamilyOf(a.Query.Destination)
	i := slices.IndexFunc(d.Lookups.Dropped, func(l DroppedLookup) bool { return l.Query == a.Query })
	source := a.Source
	switch {
	case a.Failure != 0 && i >= 0:
		d.addSimilar(found, Problem,
			fmt.Sprintf("the kernel drops packets to other hosts, such as %s, before the rules see them (%s); such"+
				" packets match: %s", a.Query, a.Failure, d.Lookups.Dropped[i].Object), "remove or replace that route or policy rule")
	case a.Failure != 0:
		d.addSimilar(found, Warning,
			fmt.Sprintf("there is no IPv%d route to other hosts, such as %s: connections fail (%s) before the"+
				" rules see them", family, a.Query.Destination, a.Failure),
			"add a default route, unless the pod must only reach the networks of its routes")
	case !source.IsValid():
	case source.IsLoopback(), source == rules.PassthroughIPv6():
		d.addSimilar(found, Problem,
			fmt.Sprintf("a route gives connections to other hosts the source address %s, to which no answers"+
				" return: %s", source, a.Text), "replace the source (src) of that route with the pod's address")
	case len(d.podAddresses(family)) > 0 && !slices.Contains(d.podAddresses(family), source):
		d.addSimilar(found, Note,
			fmt.Sprintf("a route gives connections to other hosts the source address %s, which no interface except"+
				" lo has: answers return only if other hosts have a route for it: %s", source, a.Text), "")
	}
}

// checkLocalLookups reports addresses to which the namespace does not deliver packets.
func (d *diagnosis) checkLocalLookups() {
	for _, i := range d.Interfaces {
		if i.Name == lo && !i.Up {
			return // checkInterfaces reports it
		}
	}
	for _, a := range d.Lookups.Local {
		to := a.Query.Destination
		isIPv6 := rules.FamilyOf(to) == rules.IPv6
		if a.IsLocal || isIPv6 && (!d.redirect.IPv6 || d.Settings[loIPv6Setting] != "0") {
			continue
		}
		fate, next := "the kernel sends them by another route: "+a.Text, "remove that route"
		if a.Failure != 0 {
			fate, next = fmt.Sprintf("the kernel drops them (%s)", a.Failure),
				fmt.Sprintf("add the local route again (ip -%d route add local %s dev lo table local), and"+
					" remove routes and policy rules that precede it", rules.FamilyOf(to), to)
		}
		effect := "inbound connections fail"
		switch {
		case to == rules.PassthroughIPv4() && d.ambient != nil:
			continue // ztunnel does not use this address
		case to == rules.PassthroughIPv4():
			effect = "the proxy cannot use this source address for connections to the application"
		case to.IsLoopback():
			effect = "redirected outbound connections do not reach the proxy"
		}
		d.add("routing", Problem, fmt.Sprintf("packets to %s are not delivered in the namespace; %s: %s", to, fate,
			effect), next)
	}
}
