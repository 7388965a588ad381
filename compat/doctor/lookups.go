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
	// is expected, and Unsent the answers about packets that a route or policy rule drops or sends
	// over lo.
	Outbound []route.Answer
	Unsent   []UnsentLookup
	// Incomplete contains the families with too many such routes and policy rules to look up all.
	Incomplete []rules.Family
	// Local are the answers about addresses to which the namespace must deliver packets: the
	// addresses of its interfaces, those of the proxy's listeners, and the source address of the
	// proxy's IPv4 connections to the application.
	Local []route.Answer
}

// An UnsentLookup is an answer about packets that the kernel does not send to another host, and to
// which a route or policy rule may apply that is the reason.
type UnsentLookup struct {
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
		unsent, err := listObjects(f, "routes", func() ([]route.Unsent, error) {
			return route.FindUnsent(nil, outbound, device)
		})
		if err != nil {
			return err
		}
		if len(unsent) == route.MaxUnsent {
			f.Lookups.Incomplete = append(f.Lookups.Incomplete, family)
		}
		var queries []route.Query
		for _, u := range unsent {
			queries = append(queries, u.Query)
		}
		if answers, err = route.LookUp(nil, queries, device); err != nil {
			return err
		}
		for i, a := range answers {
			if isUnsent(a) {
				f.Lookups.Unsent = append(f.Lookups.Unsent, UnsentLookup{a, unsent[i].Text})
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

// isUnsent reports whether the kernel does not send the packets to another host.
func isUnsent(a route.Answer) bool { return a.Failure != 0 || a.IsLocal || a.Device == lo }

// treatment describes what the kernel does with packets that it does not send to another host.
func treatment(a route.Answer, packets string) string {
	switch {
	case a.Failure != 0:
		return fmt.Sprintf("drops %s before the rules see them (%s)", packets, a.Failure)
	case a.IsLocal:
		return fmt.Sprintf("delivers %s in the namespace instead of sending them to another host", packets)
	}
	return fmt.Sprintf("sends %s over lo instead of to another host", packets)
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
	for _, a := range d.Lookups.Unsent {
		isReported := slices.ContainsFunc(slices.Concat(d.Lookups.Outbound, d.Lookups.Local),
			func(o route.Answer) bool { return o.Query == a.Query })
		if !isCaptured(a.Answer) || isReported || slices.Contains(reported, a.Query) {
			continue
		}
		reported = append(reported, a.Query)
		d.addSimilar(found, Warning,
			fmt.Sprintf("the kernel %s; such packets match: %s", treatment(a.Answer, a.Query.String()), a.Object),
			"remove it unless these packets must not leave the pod")
	}
	d.addMore(found, "routes or policy rules like these")
	for _, family := range d.Lookups.Incomplete {
		d.add("routing", Warning,
			fmt.Sprintf("not all IPv%d routes and policy rules that may drop packets or keep them in the namespace"+
				" are known: there are %d or more", family, route.MaxUnsent), "")
	}
}

// checkOutboundLookup reports that the application cannot connect to other hosts, or connects with
// a source address to which no answers return.
func (d *diagnosis) checkOutboundLookup(found similarFindings, a route.Answer) {
	family := rules.FamilyOf(a.Query.Destination)
	i := slices.IndexFunc(d.Lookups.Unsent, func(l UnsentLookup) bool { return l.Query == a.Query })
	source := a.Source
	switch {
	case isUnsent(a) && (i >= 0 || a.Failure == 0):
		reason := "it answers with the route " + a.Text
		if i >= 0 {
			reason = "such packets match: " + d.Lookups.Unsent[i].Object
		}
		packets := fmt.Sprintf("packets to other hosts, such as %s,", a.Query)
		d.addSimilar(found, Problem, fmt.Sprintf("the kernel %s; %s", treatment(a, packets), reason),
			"remove or replace that route or policy rule")
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
	case family == rules.IPv4 && !d.hasIPv4(a.Device):
		d.reportUnnumbered(a.Device)
	case len(d.podAddresses(family)) > 0 && !slices.Contains(d.podAddresses(family), source):
		d.addSimilar(found, Note,
			fmt.Sprintf("a route gives connections to other hosts the source address %s, which no interface except"+
				" lo has: answers return only if other hosts have a route for it: %s", source, a.Text), "")
	}
}

// reportUnnumbered reports that an interface on which connections arrive has no IPv4 address, unless
// inbound connections keep their destination (TPROXY).
func (d *diagnosis) reportUnnumbered(device string) {
	if d.ambient == nil && d.usesTProxy() {
		return
	}
	d.add("interfaces", Problem,
		device+" has no IPv4 address: the kernel drops captured connections that arrive on it, because it"+
			" redirects them to an address of the interface",
		"add the pod's address to this interface, or choose the interception mode TPROXY")
}

// hasIPv4 reports whether an interface has an IPv4 address, or is not known.
func (d *diagnosis) hasIPv4(device string) bool {
	i := slices.IndexFunc(d.Interfaces, func(i Interface) bool { return i.Name == device })
	return i < 0 || slices.ContainsFunc(d.Interfaces[i].Addrs, netip.Addr.Is4)
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
