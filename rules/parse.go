package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The parsers accept the syntax of istio-iptables' flags and Istio's annotations. The elements of a
// list are separated by commas. Empty elements are ignored, and so are blanks around elements;
// Istio refuses blanks around prefixes. An error names every invalid element and what is allowed.

// ParseMode parses the interception mode; an empty text means REDIRECT, Istio's default.
func ParseMode(text string) (Mode, error) {
	switch text {
	case "", string(ModeRedirect):
		return ModeRedirect, nil
	case string(ModeTProxy):
		return ModeTProxy, nil
	}
	return "", fmt.Errorf("%q is not a mode: want REDIRECT or TPROXY", text)
}

// ParsePort parses a port from 1 to 65535.
func ParsePort(text string) (uint16, error) {
	port, ok := parsePort(text)
	if !ok || port == 0 {
		return 0, fmt.Errorf("%q is not a port (1-65535)", text)
	}
	return port, nil
}

// ParseOptionalPort parses a port from 0 to 65535, where 0 means none.
func ParseOptionalPort(text string) (uint16, error) {
	port, ok := parsePort(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a port from 0 to 65535", text)
	}
	return port, nil
}

// parsePort parses a port from 0 to 65535.
func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil
}

// ParsePorts parses and normalizes a list of ports and ranges of ports ("80,8000-9000" or
// "80,8000:9000"). Port 0 is accepted, as in Istio, and never matches.
func ParsePorts(text string) ([]PortRange, error) {
	ranges, err := parseList(text, parsePortRange)
	return Normalize(ranges), err
}

// parsePortRange parses a port, or a range of ports.
func parsePortRange(text string) (PortRange, error) {
	first, last, isRange := strings.Cut(strings.Replace(text, ":", "-", 1), "-")
	if !isRange {
		last = first
	}
	a, okFirst := parsePort(first)
	b, okLast := parsePort(last)
	if !okFirst || !okLast || a > b {
		return PortRange{}, fmt.Errorf(
			"%q is neither a port (0-65535) nor an ascending range of ports", text)
	}
	return PortRange{a, b}, nil
}

// ParsePortSelection parses "*" for all ports, or a list as [ParsePorts] does.
func ParsePortSelection(text string) (PortSelection, error) {
	all, ports, err := parseSelection(text, ParsePorts)
	return PortSelection{All: all, Ports: ports}, err
}

// parseSelection parses "*", for which all is true, or a list.
func parseSelection[T any](
	text string, parse func(string) ([]T, error),
) (all bool, list []T, err error) {
	if text == wildcard {
		return true, nil, nil
	}
	if err = rejectWildcard(text); err == nil {
		list, err = parse(text)
	}
	return false, list, err
}

// wildcard selects all ports, addresses or groups.
const wildcard = "*"

// rejectWildcard returns an error if "*" is an element of the list. The caller has already accepted
// the text "*" itself.
func rejectWildcard(text string) error {
	var other string
	found := false
	for element := range strings.SplitSeq(text, ",") {
		switch element = strings.TrimSpace(element); {
		case element == wildcard:
			found = true
		case other == "":
			other = element
		}
	}
	switch {
	case !found:
		return nil
	case other == "":
		return errors.New(`"*" stands for all by itself: want it alone, without commas or blanks`)
	}
	return fmt.Errorf(
		`"*" stands for all and cannot be in a list with %q: want "*" alone, or a list without it`,
		other)
}

// ParsePrefixes parses a list of prefixes. Host bits may be set; an address without a length is an
// error, as in Istio.
func ParsePrefixes(text string) ([]netip.Prefix, error) { return parseList(text, parsePrefix) }

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a prefix such as 10.0.0.0/8 or fd00::/8", text)
	}
	return p, nil
}

// ParsePrefixSelection parses "*" for all addresses, or a list as [ParsePrefixes] does.
func ParsePrefixSelection(text string) (PrefixSelection, error) {
	all, prefixes, err := parseSelection(text, ParsePrefixes)
	return PrefixSelection{All: all, Prefixes: prefixes}, err
}

// ParseLoopbackCIDR parses the IPv4 loopback prefix.
func ParseLoopbackCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !isLoopbackCIDR(p) {
		return netip.Prefix{}, fmt.Errorf("%q is not %s", text, allowedLoopbackCIDR)
	}
	return p, nil
}

// A Lookup returns the numeric id of the user or group with the name.
type Lookup func(name string) (uint32, error)

// ParseIDs parses a list of numeric user or group ids and ranges of ids ("1337,2000-2999"), and
// keeps their order. The lookup resolves names; if it is nil, names are errors.
func ParseIDs(text string, lookup Lookup) ([]IDRange, error) {
	return parseList(text, func(text string) (IDRange, error) { return parseIDRange(text, lookup) })
}

// parseIDRange parses an id, a range of ids or, if there is a lookup, a name.
func parseIDRange(text string, lookup Lookup) (IDRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, errA := parseID(first)
	b, errB := parseID(last)
	if errA == nil && errB == nil && a <= b {
		return IDRange{a, b}, nil
	}
	isNotDigit := func(c rune) bool { return c < '0' || c > '9' }
	if lookup != nil && strings.ContainsFunc(text, isNotDigit) {
		id, err := lookup(text)
		if err != nil {
			err = fmt.Errorf(
				"%q is neither a numeric id (0-4294967294) nor a known name: %w", text, err)
		}
		return Single(id), err
	}
	return IDRange{}, fmt.Errorf(
		"%q is neither a numeric id (0-4294967294) nor an ascending range of ids", text)
}

// parseID parses a numeric user or group id.
func parseID(text string) (uint32, error) {
	const noID = 1<<32 - 1 // -1 means "no id" for the kernel
	n, err := strconv.ParseUint(text, 10, 32)
	if err == nil && n == noID {
		err = strconv.ErrRange
	}
	return uint32(n), err
}

// ParseGroupSelection parses "*" for all groups, or a list as [ParseIDs] does.
func ParseGroupSelection(text string, lookup Lookup) (GroupSelection, error) {
	all, ids, err := parseSelection(text, func(text string) ([]IDRange, error) {
		return ParseIDs(text, lookup)
	})
	return GroupSelection{All: all, IDs: ids}, err
}

// ParseInterfaces parses a list of interface names. A name that ends in "+" (as in iptables) or "*"
// (as in nft) is a prefix.
func ParseInterfaces(text string) ([]InterfaceName, error) {
	return parseList(text, parseInterface)
}

func parseInterface(text string) (InterfaceName, error) {
	n := InterfaceName{Name: text}
	if last := len(text) - 1; last > 0 && (text[last] == '+' || text[last] == '*') {
		n = InterfaceName{Name: text[:last], Prefix: true}
	}
	if !validInterface(n.Name) {
		return n, fmt.Errorf("%q is not %s", text, allowedInterface)
	}
	return n, nil
}

// ParseMark parses a packet mark or a table number, decimal or hexadecimal with 0x.
func ParseMark(text string) (uint32, error) {
	digits, base := text, 10
	if hex, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil {
		return 0, fmt.Errorf(
			"%q is not a number from 0 to 4294967295, decimal or hexadecimal (0x539)", text)
	}
	return uint32(n), nil
}

// ParseBool parses a Boolean in the spellings of [strconv.ParseBool], as in Istio.
func ParseBool(text string) (bool, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q is not a Boolean: want true or false", text)
	}
	return b, nil
}

// ParseServer parses the address of a DNS server. An IPv4-mapped address becomes an IPv4 address. A
// zone is ignored, because rules cannot match a zone (iptables ignores it too).
func ParseServer(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%q is not an IP address", text)
	}
	return a.Unmap().WithZone(""), nil
}

// parseList parses the elements of a list. It returns the errors of all invalid elements.
func parseList[T any](text string, parse func(string) (T, error)) ([]T, error) {
	var values []T
	var faults []error
	for element := range strings.SplitSeq(text, ",") {
		if element = strings.TrimSpace(element); element == "" {
			continue
		}
		v, err := parse(element)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if values == nil {
			// Allocate memory for all elements at once, so that append copies no values.
			values = make([]T, 0, 1+strings.Count(text, ","))
		}
		values = append(values, v)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return values, nil
}
