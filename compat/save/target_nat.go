package save

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// targetRedirect parses the target REDIRECT.
func (r *moduleReader) targetRedirect() rules.Action {
	var a rules.RedirectTo
	o := r.option("--to-ports")
	if o != nil {
		a.Port, a.Last = r.natPorts(o.values[0], o.values[0].text)
	}
	if r.isRandom() && (a.Port == 0 || a.Last != 0) {
		// The kernel selects any port of a range.
		r.unknownTranslation(xt.Translation{Kind: xt.Redirect, Port: a.Port, Last: a.Last})
	}
	return a
}

// targetDNAT parses the target DNAT: "[ADDRESS[-ADDRESS]][:PORT[-PORT[/BASE]]]", for IPv6 with
// brackets around the addresses if ports follow.
func (r *moduleReader) targetDNAT() rules.Action {
	o := r.requiredOption("--to-destination")
	if o == nil {
		return nil
	}
	w := o.values[0]
	addresses, ports := splitAddressPorts(w.text)
	var a rules.DNATTo
	if strings.Contains(ports, "/") {
		r.isUnknown = true
		return nil
	}
	if ports != "" {
		a.Port, a.Last = r.natPorts(w, strings.TrimPrefix(ports, ":"))
	}
	switch {
	case addresses != "":
		a.Addr, a.LastAddr = r.natAddresses(w, addresses)
	case ports == "":
		r.fail(w, "an address, a port, or both")
	}
	// The options affect only the selection from a range.
	if r.isRandom() && (ports == "" || a.Last != 0) ||
		r.option("--persistent") != nil && a.LastAddr.IsValid() {
		r.unknownTranslation(xt.Translation{
			Kind: xt.DestinationNAT, Addr: a.Addr, LastAddr: a.LastAddr, Port: a.Port, Last: a.Last,
		})
	}
	if addresses == "" {
		return rules.DNATPort{Port: a.Port, Last: a.Last}
	}
	return a
}

// targetSNAT parses the target SNAT. The model represents only the translation to a single address,
// without ports and without random ports. Any other translation is unknown.
func (r *moduleReader) targetSNAT() rules.Action {
	o := r.requiredOption("--to-source")
	if o == nil {
		return nil
	}
	w := o.values[0]
	addresses, ports := splitAddressPorts(w.text)
	if ports == "" && !strings.Contains(addresses, "-") && !r.isRandom() {
		a, ok := r.address(addresses)
		if !ok {
			r.fail(w, "%s, a range of them, or a port after a colon", r.expectedAddress())
		}
		return rules.SNATTo{Addr: a}
	}
	var s xt.Translation
	if addresses != "" {
		s.Addr, s.LastAddr = r.natAddresses(w, addresses)
	}
	if ports != "" {
		s.Port, s.Last = r.natPorts(w, strings.TrimPrefix(ports, ":"))
	}
	return r.unknownSourceNAT(s)
}

// targetMasquerade parses the target MASQUERADE. The kernel selects the source address.
func (r *moduleReader) targetMasquerade() rules.Action {
	s := xt.Translation{Kind: xt.Masquerade}
	if o := r.option("--to-ports"); o != nil {
		s.Port, s.Last = r.natPorts(o.values[0], o.values[0].text)
	}
	return r.unknownSourceNAT(s)
}

// unknownSourceNAT records a translation of the source that the model does not represent.
func (r *moduleReader) unknownSourceNAT(t xt.Translation) rules.Action {
	r.unknownTranslation(t)
	r.effect = rules.TranslatesSource
	return nil
}

// unknownTranslation records a translation that the model does not represent.
func (r *moduleReader) unknownTranslation(t xt.Translation) {
	t.Random, t.FullyRandom = r.option("--random") != nil, r.option("--random-fully") != nil
	t.Persistent = r.option("--persistent") != nil
	if !r.isUnknown {
		r.text = t.String()
	}
	r.isUnknown = true
}

// isRandom reports whether the kernel selects ports at random.
func (r *moduleReader) isRandom() bool {
	return r.option("--random") != nil || r.option("--random-fully") != nil
}

// splitAddressPorts separates the addresses from the ports. The colon before the ports is a part of
// ports.
func splitAddressPorts(text string) (addresses, ports string) {
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

// natAddresses parses an address or a range. last is invalid for a single address. A descending
// range makes the target unknown, because the kernel continues such a range after the highest
// address with the lowest one.
func (r *moduleReader) natAddresses(w word, text string) (first, last netip.Addr) {
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

// natPorts parses a port, or a range "FIRST-LAST". last is 0 for a single port. Port 0 makes the
// target unknown, because in the model port 0 means no port.
func (r *moduleReader) natPorts(w word, text string) (first, last uint16) {
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

// addDNAT writes the target DNAT with an address of the table's family.
func (p *rulePrinter) addDNAT(a rules.DNATTo) error {
	text := a.Addr.String()
	if a.LastAddr.IsValid() {
		text += "-" + a.LastAddr.String()
	}
	switch {
	case !p.isOfFamily(a.Addr), a.LastAddr.IsValid() && !p.isOfFamily(a.LastAddr):
		return fmt.Errorf("%s: the address is not of the table's family", a)
	case a.Port == 0 && a.Last == 0:
		return p.addTarget(a, "nat", "DNAT", "--to-destination", text)
	case a.Addr.Is6():
		text = "[" + text + "]"
	}
	text += ":" + portsText(a.Port, a.Last)
	return p.addPortTarget(a, a.Port, "nat", "DNAT", "--to-destination", text)
}
