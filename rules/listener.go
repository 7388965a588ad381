package rules

import (
	"cmp"
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
// address and port, such as 127.0.0.1:15006, if the rule names an address. Port 0 is the
// destination port of the packet.
func ListenerName(addr netip.Addr, port uint16) string {
	if addr.IsValid() {
		return netip.AddrPortFrom(addr, port).String()
	}
	return strconv.Itoa(int(port))
}

// NewListenerSet returns the set of the listeners with the names.
func NewListenerSet(names ...string) ListenerSet {
	names = slices.Sorted(slices.Values(names))
	return ListenerSet(strings.Join(slices.Compact(names), ","))
}

// Has reports whether the set contains the listener with the name. The time is logarithmic.
func (s ListenerSet) Has(name string) bool {
	for rest := string(s); rest != ""; {
		begin := strings.LastIndexByte(rest[:len(rest)/2], ',') + 1
		middle, after, _ := strings.Cut(rest[begin:], ",")
		switch cmp.Compare(name, middle) {
		case 0:
			return true
		case -1:
			rest = rest[:max(begin-1, 0)]
		default:
			rest = after
		}
	}
	return false
}

// parseListenerSet parses a list of listeners, separated by commas.
func parseListenerSet(text string) (ListenerSet, error) {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		if port, err := strconv.ParseUint(name, 10, 16); err == nil {
			names = append(names, ListenerName(netip.Addr{}, uint16(port)))
			continue
		}
		to, err := netip.ParseAddrPort(name)
		if err != nil || to.Addr().Zone() != "" {
			return "", fmt.Errorf("missing-listeners %q is not a port (0-65535) or an address and "+
				"port, such as 127.0.0.1:15006", name)
		}
		names = append(names, ListenerName(to.Addr(), to.Port()))
	}
	return NewListenerSet(names...), nil
}
