package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Fault is an invalid parameter.
type Fault struct {
	// Field is the name of the field of Redirect, Ambient or AmbientHost.
	Field string
	// Value is the value of the field, or the invalid element of a list, in quotation marks.
	// Allowed describes the allowed values.
	Value, Allowed string
}

// Faults is the error of the Validate methods of parameters: all invalid parameters.
type Faults []Fault

// Error returns a line for each fault.
func (f Faults) Error() string { return strings.Join(textsOf(f, Fault.String), "\n") }

// String returns the field, its value and the allowed values.
func (f Fault) String() string {
	return fmt.Sprintf("%s: %s is not allowed: want %s", f.Field, f.Value, f.Allowed)
}

// Validate returns nil if [Compile] accepts the parameters, and otherwise [Faults] with all invalid
// parameters.
func (r *Redirect) Validate() error {
	var faults Faults
	check := faults.check
	const port = "a port (1-65535)"
	check(r.Mode == ModeRedirect || r.Mode == ModeTProxy, "Mode", r.Mode, "REDIRECT or TPROXY")
	check(r.ProxyPort != 0, "ProxyPort", r.ProxyPort, port)
	check(r.InboundCapturePort != 0, "InboundCapturePort", r.InboundCapturePort, port)
	check(r.TunnelPort != 0, "TunnelPort", r.TunnelPort, port)
	check(len(r.ProxyUIDs) > 0, "ProxyUIDs", "", "at least one user id")
	check(len(r.ProxyGIDs) > 0, "ProxyGIDs", "", "at least one group id")
	if r.Mode == ModeTProxy {
		check(r.TProxyMark != 0 && r.TProxyMark != SelfCallMark, "TProxyMark", r.TProxyMark,
			fmt.Sprintf("1-4294967295 except %d, which marks the proxy's calls to its own pod",
				SelfCallMark))
		check(r.TProxyRouteTable != 0 && (r.TProxyRouteTable < 253 || r.TProxyRouteTable > 255),
			"TProxyRouteTable", r.TProxyRouteTable,
			"1-4294967295 except 253 to 255, which are the kernel's own tables")
	}
	checkRanges(&faults, "ProxyUIDs", r.ProxyUIDs)
	checkRanges(&faults, "ProxyGIDs", r.ProxyGIDs)
	checkRanges(&faults, "InboundPorts", r.InboundPorts.Ports)
	checkRanges(&faults, "InboundExcludePorts", r.InboundExcludePorts)
	checkRanges(&faults, "OutboundPorts", r.OutboundPorts)
	checkRanges(&faults, "OutboundExcludePorts", r.OutboundExcludePorts)
	checkRanges(&faults, "OwnerGroups", r.OwnerGroups.IDs)
	checkRanges(&faults, "OwnerGroupsExclude", r.OwnerGroupsExclude)
	check(!r.InboundPorts.All || len(r.InboundPorts.Ports) == 0, "InboundPorts",
		r.InboundPorts.Ports, "all ports or a list, not both")
	check(!r.OutboundCIDRs.All || len(r.OutboundCIDRs.Prefixes) == 0, "OutboundCIDRs",
		r.OutboundCIDRs.Prefixes, "all addresses or a list, not both")
	check(!r.OwnerGroups.All || len(r.OwnerGroups.IDs) == 0, "OwnerGroups", r.OwnerGroups.IDs,
		"all groups or a list, not both")
	check(len(r.OwnerGroups.IDs) <= MaxOwnerGroups, "OwnerGroups",
		fmt.Sprintf("%d groups", len(r.OwnerGroups.IDs)),
		fmt.Sprintf("at most %d, which is Istio's limit", MaxOwnerGroups))
	faults.checkPrefixes("OutboundCIDRs", r.OutboundCIDRs.Prefixes)
	faults.checkPrefixes("OutboundExcludeCIDRs", r.OutboundExcludeCIDRs)
	faults.checkInterfaces("ExcludeInterfaces", r.ExcludeInterfaces)
	faults.checkInterfaces("RerouteInterfaces", r.RerouteInterfaces)
	check(isLoopbackCIDR(r.LoopbackCIDR), "LoopbackCIDR", r.LoopbackCIDR, allowedLoopbackCIDR)
	for _, server := range r.DNS.Servers {
		check(server.IsValid() && server.Zone() == "", "DNS.Servers", server,
			"an IP address without zone")
	}
	faults.checkDeviations(r.Without)
	return faults.orNil()
}

// check appends a fault unless ok is true. The conversion of the value to an interface allocates
// memory. Therefore callers with a long list call check only for invalid elements.
func (f *Faults) check(ok bool, field string, value any, allowed string) {
	if !ok {
		*f = append(*f, Fault{field, fmt.Sprintf("%q", fmt.Sprint(value)), allowed})
	}
}

// orNil returns the faults, or nil if there are none.
func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// checkRanges appends a fault for each range whose first number is above its last.
func checkRanges[T uint16 | uint32](f *Faults, field string, ranges []Range[T]) {
	for _, r := range ranges {
		if r.First > r.Last {
			f.check(false, field, r, "a range whose first number is not above its last")
		}
	}
}

// checkPrefixes appends a fault for each invalid prefix.
func (f *Faults) checkPrefixes(field string, prefixes []netip.Prefix) {
	for _, p := range prefixes {
		if !p.IsValid() {
			f.check(false, field, p, "a valid prefix")
		}
	}
}

// checkInterfaces appends a fault for each invalid name of an interface.
func (f *Faults) checkInterfaces(field string, names []InterfaceName) {
	for _, n := range names {
		if !validInterface(n.Name) {
			f.check(false, field, n, allowedInterface)
		}
	}
}

// checkDeviations appends a fault for each id that is not the id of a deviation.
func (f *Faults) checkDeviations(ids []DeviationID) {
	for _, id := range ids {
		_, err := ParseDeviationID(string(id))
		f.check(err == nil, "Without", id, "the id of a deviation")
	}
}

// allowedLoopbackCIDR describes the prefixes for which isLoopbackCIDR is true.
const allowedLoopbackCIDR = "an IPv4 loopback prefix from /8 to /32, such as 127.0.0.1/32"

// isLoopbackCIDR reports whether all addresses of the prefix are IPv4 loopback addresses.
func isLoopbackCIDR(p netip.Prefix) bool {
	return p.IsValid() && p.Addr().Is4() && p.Addr().IsLoopback() && p.Bits() >= 8
}

// allowedInterface describes the names that parameters may contain (see validInterface).
const allowedInterface = "the name of an interface: 1 to 15 bytes, not . or .., without " +
	"blanks, control characters, slashes, colons and quotation marks; " +
	"one + or * at the end matches all names with this prefix"

// validInterface reports whether name is the name of an interface, or a prefix without its final
// "+" or "*". The kernel's conditions are those of dev_valid_name (net/core/dev.c). In addition, a
// name must not end in another "+" or "*", or contain a control character or a quotation mark.
func validInterface(name string) bool {
	const maxLength = 15 // IFNAMSIZ without the terminating zero
	if name == "" || len(name) > maxLength || name == "." || name == ".." ||
		strings.HasSuffix(name, "*") || strings.HasSuffix(name, "+") {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c == '/' || c == ':' || c == 0x7f || c == '"'
	})
}
