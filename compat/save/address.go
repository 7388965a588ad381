package save

import (
	"net"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// readAddress parses an address, a prefix, or a list of these, each of which becomes a separate
// rule.
func (r *ruleReader) readAddress(flag word, not bool) {
	side, place, bit := rules.Source, &r.header.source, uint(givenSource)
	if flag.raw == "-d" || strings.HasPrefix(flag.raw, "--d") {
		side, place, bit = rules.Destination, &r.header.destination, givenDestination
	}
	r.recordOnce(flag, bit)
	w := r.value(r.wantAddress(), &not)
	if strings.Contains(w.text, ",") && not {
		r.fail(w, "a single address after a !")
		return
	}
	r.header.list = w
	for text := range strings.SplitSeq(w.text, ",") {
		*place = append(*place, r.addressMatch(flag, w, text, side, not))
	}
}

func (r *ruleReader) wantAddress() string {
	if r.family == rules.IPv6 {
		return "an IPv6 address or prefix"
	}
	return "an IPv4 address or prefix"
}

// addressMatch parses an address with its mask; it returns nil if all addresses match.
func (r *ruleReader) addressMatch(flag, w word, text string, side rules.Side, not bool) rules.Match {
	address, mask, masked := strings.Cut(text, "/")
	if isName(address) {
		return unread(flag, not, word{raw: text}) // of a host
	}
	a, ok := r.address(address)
	if !ok {
		r.fail(w, "%s", r.wantAddress())
		return nil
	}
	bits := a.BitLen()
	if masked {
		if bits, ok = r.maskBits(mask, a.BitLen()); !ok {
			r.fail(w, "%s", r.wantAddress())
			return nil
		}
	}
	switch {
	case bits < 0:
		return unread(flag, not, word{raw: text})
	case bits == 0 && !not:
		return nil
	}
	prefix := netip.PrefixFrom(a, bits)
	return rules.MatchAddr{
		Side: side, Not: not, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(prefix)},
	}
}

// address parses an address of the family. A zone is ignored, because rules cannot match it
// (iptables ignores it too).
func (r *ruleReader) address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a.WithZone(""), err == nil && rules.FamilyOf(a) == r.family
}

// maskBits parses the length of a prefix, or a mask; -1 for a noncontiguous mask.
func (r *ruleReader) maskBits(text string, most int) (int, bool) {
	if n, ok := number(text, 8); ok {
		return int(n), int(n) <= most
	}
	mask, ok := r.address(text)
	if !ok {
		return 0, false
	}
	ones, size := net.IPMask(mask.AsSlice()).Size()
	if size == 0 {
		return -1, true
	}
	return ones, true
}

// addressRange parses "FIRST-LAST" or one address.
func (r *moduleReader) addressRange(w word) []netipx.IPRange {
	from, to, isRange := strings.Cut(w.text, "-")
	if !isRange {
		to = from
	}
	a, okA := r.address(from)
	b, okB := r.address(to)
	if !okA || !okB || b.Less(a) {
		r.fail(w, "a range of addresses, as 10.0.0.1-10.0.0.9, of the family")
		return nil
	}
	return []netipx.IPRange{netipx.IPRangeFrom(a, b)}
}
