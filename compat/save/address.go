package save

import (
	"net"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// readAddress parses an address, a prefix, or a list of addresses and prefixes. Each element of a
// list becomes a separate rule.
func (r *ruleReader) readAddress(flag word, not bool) {
	side, matches, bit := rules.Source, &r.header.source, uint(givenSource)
	if flag.raw == "-d" || strings.HasPrefix(flag.raw, "--d") {
		side, matches, bit = rules.Destination, &r.header.destination, givenDestination
	}
	r.recordOnce(flag, bit)
	w := r.value(r.expectedAddress(), &not)
	if strings.Contains(w.text, ",") && not {
		r.fail(w, "a single address after a !")
		return
	}
	switch count := strings.Count(w.text, ","); {
	case not:
		r.header.negated = w
	case count > 0:
		r.header.lastList = w
		if count >= maxRules {
			r.size = maxSize + 1
			r.failSize()
			return
		}
	}
	if r.header.negated.raw != "" && r.header.lastList.raw != "" {
		r.failAfterOptions(r.header.negated, "no negated address beside a list of addresses")
	}
	for text := range strings.SplitSeq(w.text, ",") {
		*matches = append(*matches, r.addressMatch(flag, w, text, side, not))
	}
}

// expectedAddress describes an address of the family in errors.
func (r *ruleReader) expectedAddress() string {
	if r.family == rules.IPv6 {
		return "an IPv6 address or prefix"
	}
	return "an IPv4 address or prefix"
}

// addressMatch parses an address with its mask. It returns nil if all addresses match, or if the
// text is invalid. w is the word that contains the text.
func (r *ruleReader) addressMatch(
	flag, w word, text string, side rules.Side, not bool,
) rules.Match {
	address, mask, hasMask := strings.Cut(text, "/")
	if isName(address) { // the name of a host
		return unknownHeaderMatch(flag, not, word{raw: text})
	}
	a, ok := r.shortAddress(address)
	bits := a.BitLen()
	if ok && hasMask {
		bits, ok = r.maskBits(mask, a.BitLen())
	}
	switch {
	case !ok:
		r.failAfterOptions(w, "%s", r.expectedAddress())
		return nil
	case bits < 0:
		return unknownHeaderMatch(flag, not, word{raw: text})
	case bits == 0 && !not:
		return nil
	}
	prefix := netip.PrefixFrom(a, bits)
	return rules.MatchAddr{
		Side: side, Not: not, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(prefix)},
	}
}

// address parses an address of the family. Like iptables, it ignores an IPv6 zone such as %eth0,
// because rules cannot match a zone.
func (r *ruleReader) address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a.WithZone(""), err == nil && rules.FamilyOf(a) == r.family
}

// shortAddress parses an address of the family. An IPv4 address may lack its last bytes, which are
// then 0, and its bytes may be octal or hexadecimal: 10 is 10.0.0.0, and 010.0.0.1 is 8.0.0.1
// (__numeric_to_ipaddr in libxtables/xtables.c).
func (r *ruleReader) shortAddress(text string) (netip.Addr, bool) {
	parts := strings.SplitN(text, ".", 5)
	if r.family != rules.IPv4 || len(parts) > 4 {
		return r.address(text)
	}
	var bytes [4]byte
	for i, part := range parts {
		n, ok := number(part, 8)
		if !ok {
			return netip.Addr{}, false
		}
		bytes[i] = byte(n)
	}
	return netip.AddrFrom4(bytes), true
}

// maskBits parses the length of a prefix, which is at most maxBits, or a mask. It returns -1 for a
// mask whose set bits are not contiguous from the first bit.
func (r *ruleReader) maskBits(text string, maxBits int) (int, bool) {
	if n, ok := number(text, 8); ok {
		return int(n), int(n) <= maxBits
	}
	mask, ok := r.shortAddress(text)
	if !ok || r.family == rules.IPv4 && strings.Count(text, ".") != 3 {
		return 0, false
	}
	ones, size := net.IPMask(mask.AsSlice()).Size()
	if size == 0 {
		return -1, true
	}
	return ones, true
}
