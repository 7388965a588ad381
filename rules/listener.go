package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A ListenerSet is a set of listeners of tproxy rules, in the syntax of [ParsePacket]: the sorted
// results of [ListenerName], separated by commas. The zero value is the empty set.
type ListenerSet string

// ListenerName returns the name of the listener of a tproxy rule: its port, such as 15006, or its
// address and port, such as 127.0.0.1:15006, if the rule names an address. Port 0 is the destination
// port of the packet.
func ListenerName(addr netip.Addr, port uint16) string {
	if addr.IsValid() {
		return netip.AddrPortFrom(addr, port).String()
	}
	return strconv.Itoa(int(port))
}

// Has reports whether the set contains the listener with the name.
func (s ListenerSet) Has(name string) bool {
	return s != "" && slices.Contains(strings.Split(string(s), ","), name)
}

// With returns the set with the listener with the name.
func (s ListenerSet) With(name string) ListenerSet {
	if s == "" {
		return ListenerSet(name)
	}
	names := append(strings.Split(string(s), ","), name)
	slices.Sort(names)
	return ListenerSet(strings.Join(slices.Compact(names), ","))
}

// parseListenerSet parses a list of listeners, separated by commas.
func parseListenerSet(text string) (ListenerSet, error) {
	var set ListenerSet
	for name := range strings.SplitSeq(text, ",") {
		if port, err := strconv.ParseUint(name, 10, 16); err == nil {
			set = set.With(ListenerName(netip.Addr{}, uint16(port)))
			continue
		}
		to, err := netip.ParseAddrPort(name)
		if err != nil || to.Addr().Zone() != "" {
			return "", fmt.Errorf("missing-listeners %q is not a port (0-65535) or an address and "+
				"port, such as 127.0.0.1:15006", name)
		}
		set = set.With(ListenerName(to.Addr(), to.Port()))
	}
	return set, nil
}
