package save

import (
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// redirect parses the target REDIRECT.
func (r *moduleReader) redirect() rules.Action {
	var a rules.RedirectTo
	o := r.option("--to-ports")
	if o != nil {
		a.Port, a.Last = r.toPorts(o.values[0], o.values[0].text)
	}
	// With an option for random ports the kernel selects any port of a range.
	r.isUnknown = r.isUnknown || r.isRandom() && (o == nil || a.Last != 0)
	return a
}

// isRandom reports whether the kernel selects ports at random.
func (r *moduleReader) isRandom() bool {
	return r.option("--random") != nil || r.option("--random-fully") != nil
}

// toPorts parses a port, or a range "FIRST-LAST". last is 0 for a single port. Port 0 is unknown,
// because in the model it means no port.
func (r *moduleReader) toPorts(w word, text string) (first, last uint16) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange || isName(text) {
		from, to = text, text
	}
	first, last = r.port(w, from), r.port(w, to)
	if first > last && !r.isUnknown {
		r.fail(w, "a port or an ascending range of ports")
	}
	r.isUnknown = r.isUnknown || first == 0
	if first == last {
		last = 0
	}
	return first, last
}

// dnat parses the target DNAT: "[ADDRESS[-ADDRESS]][:PORT[-PORT[/BASE]]]", for IPv6 with brackets
// around the addresses if ports follow.
func (r *moduleReader) dnat() rules.Action {
	o := r.requiredOption("--to-destination")
	if o == nil {
		return nil
	}
	w := o.values[0]
	addresses, ports := splitDestination(w.text)
	var a rules.DNATTo
	if strings.Contains(ports, "/") {
		r.isUnknown = true
		return nil
	}
	if ports != "" {
		a.Port, a.Last = r.toPorts(w, strings.TrimPrefix(ports, ":"))
	}
	if addresses == "" {
		r.isUnknown = r.isUnknown || r.isRandom() && a.Last != 0
		if ports == "" {
			r.fail(w, "an address, a port, or both")
		}
		return rules.DNATPort{Port: a.Port, Last: a.Last}
	}
	a.Addr, a.LastAddr = r.toAddresses(w, addresses)
	isRange := a.Last != 0 || a.LastAddr.IsValid()
	persistent := r.option("--persistent") != nil
	r.isUnknown = r.isUnknown || r.isRandom() && (ports == "" || isRange) || persistent && isRange
	return a
}

// splitDestination separates the addresses from the ports, which keep their colon.
func splitDestination(text string) (addresses, ports string) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		addresses, ports, ok = strings.Cut(inner, "]")
		if !ok || ports != "" && ports[0] != ':' {
			return text, "" // not an address
		}
		return addresses, ports
	}
	i := strings.IndexByte(text, ':')
	if i < 0 || strings.Contains(text[i+1:], ":") {
		return text, "" // an IPv6 address, which ports can follow only after brackets
	}
	return text[:i], text[i:]
}

// toAddresses parses an address or a range. last is invalid for a single address. A descending
// range is unknown, because for the kernel it wraps around at the last address.
func (r *moduleReader) toAddresses(w word, text string) (first, last netip.Addr) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, firstValid := r.address(from)
	last, lastValid := r.address(to)
	switch {
	case !firstValid || !lastValid:
		r.fail(w, "%s, a range of them, or a port after a colon", r.expectedAddress())
	case first == last:
		last = netip.Addr{}
	case last.Less(first):
		r.isUnknown = true
	}
	return first, last
}

// snat parses the target SNAT. A translation to other than a single address is unknown, because the
// kernel selects the address or the port.
func (r *moduleReader) snat() rules.Action {
	o := r.requiredOption("--to-source")
	if o == nil {
		return nil
	}
	w := o.values[0]
	addresses, ports := splitDestination(w.text)
	if ports == "" && !strings.Contains(addresses, "-") && !r.isRandom() {
		a, ok := r.address(addresses)
		if !ok {
			r.fail(w, "%s, a range of them, or a port after a colon", r.expectedAddress())
		}
		return rules.SNATTo{Addr: a}
	}
	var s xt.SourceNAT
	if addresses != "" {
		s.Addr, s.LastAddr = r.toAddresses(w, addresses)
	}
	if ports != "" {
		s.Port, s.Last = r.toPorts(w, strings.TrimPrefix(ports, ":"))
	}
	return r.unknownSource(s)
}

// masquerade parses the target MASQUERADE, for which the kernel selects the address.
func (r *moduleReader) masquerade() rules.Action {
	s := xt.SourceNAT{Masquerade: true}
	if o := r.option("--to-ports"); o != nil {
		s.Port, s.Last = r.toPorts(o.values[0], o.values[0].text)
	}
	return r.unknownSource(s)
}

// unknownSource records a translation to a source that the rule does not determine.
func (r *moduleReader) unknownSource(s xt.SourceNAT) rules.Action {
	s.Random, s.FullyRandom = r.option("--random") != nil, r.option("--random-fully") != nil
	s.Persistent = r.option("--persistent") != nil
	if !r.isUnknown {
		r.text = s.String()
	}
	r.isUnknown, r.effect = true, rules.TranslatesSource
	return nil
}
