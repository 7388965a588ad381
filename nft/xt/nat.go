package xt

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// Flags of NAT (NF_NAT_RANGE_* in linux/netfilter/nf_nat.h). Other flags add an offset to the port,
// or replace only the prefix of the address.
const (
	natAddrs       = 1 << 0
	natPorts       = 1 << 1
	natRandom      = 1 << 2 // a random port of the range
	natPersistent  = 1 << 3 // an address of the range that depends only on the source
	natRandomFully = 1 << 4
)

// Offsets and sizes of struct nf_nat_ipv4_multi_range_compat and struct nf_nat_range. Ports are in
// network byte order.
const (
	rangeCount4 = 0 // number of ranges, always one
	rangeFlags4 = 4
	rangeAddrs4 = 8
	rangePorts4 = 16
	rangeSize4  = 20

	rangeFlags = 0
	rangeAddrs = 4
	rangePorts = 4 + 2*addrSize
	rangeSize  = 40
	// struct nf_nat_range2 has another port, which is used only with a flag.
	rangeSize2 = 44
)

// A natRange is the range of addresses and ports to which NAT translates. A zero address or port
// means that the rule does not specify it. A range of one value has no last value.
type natRange struct {
	addr, lastAddr netip.Addr
	port, lastPort uint16
	// flags are the decoded flags. isComplete reports whether [Translation] supports all of them.
	// If so, the range and the flags describe the decoded structure completely.
	flags      uint32
	isComplete bool
}

// decodeRange4 decodes a struct nf_nat_ipv4_multi_range_compat.
func decodeRange4(info []byte) (natRange, bool) {
	if len(info) < rangeSize4 || native.Uint32(info[rangeCount4:]) != 1 {
		return natRange{}, false
	}
	return newRange(native.Uint32(info[rangeFlags4:]), [2]netip.Addr{
		decodeAddr(rules.IPv4, info[rangeAddrs4:]), decodeAddr(rules.IPv4, info[rangeAddrs4+4:]),
	}, info[rangePorts4:])
}

// decodeRange decodes a struct nf_nat_range, or a longer structure with the same beginning. size is
// the size of the structure.
func decodeRange(family rules.Family, info []byte, size int) (natRange, bool) {
	if len(info) < size || family == rules.Inet {
		return natRange{}, false
	}
	return newRange(native.Uint32(info[rangeFlags:]), [2]netip.Addr{
		decodeAddr(family, info[rangeAddrs:]), decodeAddr(family, info[rangeAddrs+addrSize:]),
	}, info[rangePorts:])
}

// newRange returns the range of a structure, as far as it could be decoded. ok reports whether the
// model can represent the range. The model has no flags for the choice of an address or a port
// within a range. newRange ignores such flags if the range has one value.
func newRange(flags uint32, addrs [2]netip.Addr, ports []byte) (r natRange, ok bool) {
	r.flags = flags
	if flags&natAddrs != 0 {
		r.addr = addrs[0]
		switch addrs[0].Compare(addrs[1]) {
		case -1:
			r.lastAddr = addrs[1]
		case 1:
			return r, false
		}
	}
	if flags&natPorts != 0 {
		first, last := network.Uint16(ports), network.Uint16(ports[2:])
		if first == 0 || last < first {
			return r, false
		}
		r.port = first
		if last > first {
			r.lastPort = last
		}
	}
	const random = natRandom | natRandomFully
	r.isComplete = flags&^(natAddrs|natPorts|natPersistent|random) == 0
	ok = r.isComplete && (flags&random == 0 || r.port != 0 && r.lastPort == 0) &&
		(flags&natPersistent == 0 || !r.lastAddr.IsValid())
	return r, ok
}

// text returns the text that identifies the translation. ok is false if the range does not describe
// the translation completely, or if a translation of this kind cannot have the range.
func (r natRange) text(kind TranslationKind) (text string, ok bool) {
	isEmpty := !r.addr.IsValid() && r.port == 0
	if !r.isComplete || isEmpty && kind == DestinationNAT ||
		r.addr.IsValid() && (kind == Masquerade || kind == Redirect) {
		return "", false
	}
	t := Translation{
		Kind: kind, Addr: r.addr, LastAddr: r.lastAddr, Port: r.port, Last: r.lastPort,
	}
	t.SetFlags(r.flags)
	return t.String(), true
}

// unknownDestinationNAT returns a translation of the destination that the model does not represent.
func unknownDestinationNAT(r natRange, kind TranslationKind, x Extension) rules.Action {
	u := unknownTarget(x, rules.AnyEffect)
	if text, ok := r.text(kind); ok {
		u.Text, u.Data = text, ""
	}
	return u
}

// encode4 encodes a struct nf_nat_ipv4_multi_range_compat.
func (r natRange) encode4() []byte {
	data := make([]byte, rangeSize4)
	native.PutUint32(data[rangeCount4:], 1)
	r.write(data[rangeFlags4:], data[rangeAddrs4:], data[rangeAddrs4+4:], data[rangePorts4:])
	return data
}

// encode encodes a struct nf_nat_range.
func (r natRange) encode() []byte {
	data := make([]byte, rangeSize)
	r.write(data[rangeFlags:], data[rangeAddrs:], data[rangeAddrs+addrSize:], data[rangePorts:])
	return data
}

// write writes the range to the fields of a structure.
func (r natRange) write(flags, first, last, ports []byte) {
	var bits uint32
	if r.addr.IsValid() {
		bits |= natAddrs
		copy(first, r.addr.AsSlice())
		lastAddr := r.addr
		if r.lastAddr.IsValid() {
			lastAddr = r.lastAddr
		}
		copy(last, lastAddr.AsSlice())
	}
	if r.port != 0 {
		bits |= natPorts
		network.PutUint16(ports, r.port)
		network.PutUint16(ports[2:], max(r.port, r.lastPort))
	}
	native.PutUint32(flags, bits)
}

// check returns an error for a range that no structure of the family can represent.
func (r natRange) check(family rules.Family) error {
	switch {
	case r.lastPort != 0 && r.lastPort < r.port, r.lastPort != 0 && r.port == 0:
		return fmt.Errorf("ports %d-%d: the first port must be 1 or more and at most the last",
			r.port, r.lastPort)
	case r.addr.IsValid() && rules.FamilyOf(r.addr) != family:
		return fmt.Errorf("address %s is not of family %s", r.addr, family)
	case r.lastAddr.IsValid() && (r.addr.BitLen() != r.lastAddr.BitLen() ||
		r.lastAddr.Less(r.addr)):
		return fmt.Errorf("addresses %s-%s: the first must be at most the last", r.addr, r.lastAddr)
	}
	return nil
}

// decodeRedirect decodes the structure of REDIRECT. For IPv4 it equals revision 0 of DNAT.
func decodeRedirect(family rules.Family, x Extension) rules.Action {
	var r natRange
	var ok bool
	switch family {
	case rules.IPv4:
		r, ok = decodeRange4(x.Data)
	case rules.IPv6:
		r, ok = decodeRange(family, x.Data, rangeSize)
	}
	if !ok || r.addr.IsValid() {
		return unknownDestinationNAT(r, Redirect, x)
	}
	return rules.RedirectTo{Port: r.port, Last: r.lastPort}
}

// encodeRedirect encodes the structure of REDIRECT.
func encodeRedirect(family rules.Family, a rules.RedirectTo) (Extension, error) {
	x, r := Extension{Name: "REDIRECT"}, natRange{port: a.Port, lastPort: a.Last}
	if err := r.check(family); err != nil {
		return x, fmt.Errorf("%s: %w", a, err)
	}
	if family == rules.IPv4 {
		x.Data = r.encode4()
	} else {
		x.Data = r.encode()
	}
	return x, nil
}

// decodeSNAT decodes SNAT. The model has an action for one address without ports; other forms are
// unknown translations.
func decodeSNAT(family rules.Family, x Extension) rules.Action {
	r, ok := decodeAnyRange(family, x.Revision, x.Data)
	if !ok || !r.addr.IsValid() || r.lastAddr.IsValid() || r.port != 0 {
		return unknownSourceNAT(r, x)
	}
	return rules.SNATTo{Addr: r.addr}
}

// decodeMasquerade decodes MASQUERADE, for which the kernel selects the address.
func decodeMasquerade(family rules.Family, x Extension) rules.Action {
	var r natRange
	switch family {
	case rules.IPv4:
		r, _ = decodeRange4(x.Data)
	case rules.IPv6:
		r, _ = decodeRange(family, x.Data, rangeSize)
	}
	return unknownSourceNAT(r, x)
}

// unknownSourceNAT returns a translation of the source that the model does not represent.
func unknownSourceNAT(r natRange, x Extension) rules.Unknown {
	u := unknownTarget(x, rules.TranslatesSource)
	kind := SourceNAT
	if x.Name == "MASQUERADE" {
		kind = Masquerade
	}
	if text, ok := r.text(kind); ok {
		u.Text, u.Data = text, ""
	}
	return u
}

// A Translation is an address translation that the model does not represent. A zero address or port
// means that the rule does not specify the address or the port. A range of one value has no last
// value. A Translation has the same text whether it was read from an extension of xtables or from
// expressions of nftables.
type Translation struct {
	Kind                            TranslationKind
	Addr, LastAddr                  netip.Addr
	Port, Last                      uint16
	Random, FullyRandom, Persistent bool
}

// TranslationKind is the kind of a [Translation].
type TranslationKind uint8

// The kinds.
const (
	SourceNAT TranslationKind = iota
	Masquerade
	DestinationNAT
	Redirect
)

// SetFlags sets Random, FullyRandom and Persistent from flags of NAT (NF_NAT_RANGE_* in
// linux/netfilter/nf_nat.h).
func (t *Translation) SetFlags(flags uint32) {
	t.Random, t.FullyRandom = flags&natRandom != 0, flags&natRandomFully != 0
	t.Persistent = flags&natPersistent != 0
}

// String returns the translation in nft's syntax.
func (t Translation) String() string {
	text, to := [...]string{"snat", "masquerade", "dnat", "redirect"}[t.Kind], ""
	if t.Addr.IsValid() {
		to = t.Addr.String()
		if t.LastAddr.IsValid() {
			to += "-" + t.LastAddr.String()
		}
		if t.Port != 0 && t.Addr.Is6() {
			to = "[" + to + "]"
		}
	}
	if t.Port != 0 {
		to += fmt.Sprintf(":%d", t.Port)
		if t.Last != 0 {
			to += fmt.Sprintf("-%d", t.Last)
		}
	}
	if to != "" {
		text += " to " + to
	}
	for _, flag := range [...]struct {
		name string
		set  bool
	}{{"random", t.Random}, {"fully-random", t.FullyRandom}, {"persistent", t.Persistent}} {
		if flag.set {
			text += " " + flag.name
		}
	}
	return text
}

// encodeSNAT encodes the structure of SNAT in the oldest revision that supports the family.
func encodeSNAT(family rules.Family, a rules.SNATTo) (Extension, error) {
	r := natRange{addr: a.Addr}
	if err := r.check(family); err != nil {
		return Extension{}, fmt.Errorf("SNAT: %w", err)
	}
	if family == rules.IPv6 {
		return Extension{Name: "SNAT", Revision: 1, Data: r.encode()}, nil
	}
	return Extension{Name: "SNAT", Data: r.encode4()}, nil
}

// decodeAnyRange decodes the structures of DNAT and SNAT. Revision 0 supports only IPv4, and the
// other revisions support both families.
func decodeAnyRange(family rules.Family, revision uint32, info []byte) (r natRange, ok bool) {
	switch {
	case revision == 0 && family == rules.IPv4:
		r, ok = decodeRange4(info)
	case revision == 1:
		r, ok = decodeRange(family, info, rangeSize)
	case revision == 2:
		r, ok = decodeRange(family, info, rangeSize2)
	}
	return r, ok
}

// decodeDNAT decodes the structures of DNAT.
func decodeDNAT(family rules.Family, x Extension) rules.Action {
	r, ok := decodeAnyRange(family, x.Revision, x.Data)
	switch {
	case ok && r.addr.IsValid():
		return rules.DNATTo{Addr: r.addr, LastAddr: r.lastAddr, Port: r.port, Last: r.lastPort}
	case ok && r.port != 0:
		return rules.DNATPort{Port: r.port, Last: r.lastPort}
	}
	return unknownDestinationNAT(r, DestinationNAT, x)
}

// encodeDNAT encodes the structure of DNAT in the oldest revision that supports the family.
func encodeDNAT(family rules.Family, a rules.DNATTo) (Extension, error) {
	r := natRange{addr: a.Addr, lastAddr: a.LastAddr, port: a.Port, lastPort: a.Last}
	if !r.addr.IsValid() && r.port == 0 {
		return Extension{}, errors.New("DNAT to port 0")
	}
	if err := r.check(family); err != nil {
		return Extension{}, fmt.Errorf("DNAT: %w", err)
	}
	if family == rules.IPv6 {
		return Extension{Name: "DNAT", Revision: 1, Data: r.encode()}, nil
	}
	return Extension{Name: "DNAT", Data: r.encode4()}, nil
}
