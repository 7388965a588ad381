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
	// struct nf_nat_range2 has an additional port, which is used only with a flag.
	rangeSize2 = 44
)

// A natRange is a decoded structure of NAT.
type natRange struct {
	Translation // without its kind, which the structure does not contain
	// isComplete reports whether the translation contains everything that the structure specifies.
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
	r.SetFlags(flags)
	if flags&natAddrs != 0 {
		r.Addr = addrs[0]
		switch addrs[0].Compare(addrs[1]) {
		case -1:
			r.LastAddr = addrs[1]
		case 1:
			return r, false
		}
	}
	if flags&natPorts != 0 {
		first, last := network.Uint16(ports), network.Uint16(ports[2:])
		if first == 0 || last < first {
			return r, false
		}
		r.Port = first
		if last > first {
			r.Last = last
		}
	}
	isRandom := r.Random || r.FullyRandom
	r.isComplete = flags&^(natAddrs|natPorts|natPersistent|natRandom|natRandomFully) == 0
	ok = r.isComplete && (!isRandom || r.Port != 0 && r.Last == 0) &&
		(!r.Persistent || !r.LastAddr.IsValid())
	return r, ok
}

// unknownNAT returns a translation that the model does not represent. The text identifies the
// translation if the range is complete, and if this kind of translation can have the range.
func unknownNAT(r natRange, kind TranslationKind, x Extension) rules.Unknown {
	effect := rules.AnyEffect
	if kind == SourceNAT || kind == Masquerade {
		effect = rules.TranslatesSource
	}
	u := unknownTarget(x, effect)
	hasAddr := r.Addr.IsValid()
	if r.isComplete && (hasAddr || r.Port != 0 || kind != DestinationNAT) &&
		(!hasAddr || kind == SourceNAT || kind == DestinationNAT) {
		r.Kind = kind
		u.Text, u.Data = r.String(), ""
	}
	return u
}

// encode4 encodes a struct nf_nat_ipv4_multi_range_compat.
func (t Translation) encode4() []byte {
	data := make([]byte, rangeSize4)
	native.PutUint32(data[rangeCount4:], 1)
	t.write(data[rangeFlags4:], data[rangeAddrs4:], data[rangeAddrs4+4:], data[rangePorts4:])
	return data
}

// encode encodes a struct nf_nat_range.
func (t Translation) encode() []byte {
	data := make([]byte, rangeSize)
	t.write(data[rangeFlags:], data[rangeAddrs:], data[rangeAddrs+addrSize:], data[rangePorts:])
	return data
}

// write writes the addresses and ports to the fields of a structure.
func (t Translation) write(flags, first, last, ports []byte) {
	var bits uint32
	if t.Addr.IsValid() {
		bits |= natAddrs
		copy(first, t.Addr.AsSlice())
		lastAddr := t.Addr
		if t.LastAddr.IsValid() {
			lastAddr = t.LastAddr
		}
		copy(last, lastAddr.AsSlice())
	}
	if t.Port != 0 {
		bits |= natPorts
		network.PutUint16(ports, t.Port)
		network.PutUint16(ports[2:], max(t.Port, t.Last))
	}
	native.PutUint32(flags, bits)
}

// check returns an error for addresses and ports that no structure of the family can represent.
func (t Translation) check(family rules.Family) error {
	switch {
	case t.Last != 0 && (t.Last < t.Port || t.Port == 0):
		return fmt.Errorf("ports %d-%d: the first port must be 1 or more and at most the last",
			t.Port, t.Last)
	case t.Addr.IsValid() && rules.FamilyOf(t.Addr) != family:
		return fmt.Errorf("address %s is not of family %s", t.Addr, family)
	case t.LastAddr.IsValid() && (t.Addr.BitLen() != t.LastAddr.BitLen() ||
		t.LastAddr.Less(t.Addr)):
		return fmt.Errorf("addresses %s-%s: the first must be at most the last", t.Addr, t.LastAddr)
	}
	return nil
}

// decodeRedirect decodes REDIRECT.
func decodeRedirect(family rules.Family, x Extension) rules.Action {
	r, ok := decodeUnversionedRange(family, x.Data)
	if !ok || r.Addr.IsValid() {
		return unknownNAT(r, Redirect, x)
	}
	return rules.RedirectTo{Port: r.Port, Last: r.Last}
}

// decodeSNAT decodes SNAT. The model has an action for one address without ports; other forms are
// unknown translations.
func decodeSNAT(family rules.Family, x Extension) rules.Action {
	r, ok := decodeVersionedRange(family, x.Revision, x.Data)
	if !ok || !r.Addr.IsValid() || r.LastAddr.IsValid() || r.Port != 0 {
		return unknownNAT(r, SourceNAT, x)
	}
	return rules.SNATTo{Addr: r.Addr}
}

// decodeMasquerade decodes MASQUERADE, for which the kernel selects the address.
func decodeMasquerade(family rules.Family, x Extension) rules.Action {
	r, _ := decodeUnversionedRange(family, x.Data)
	return unknownNAT(r, Masquerade, x)
}

// A Translation is a translation of addresses or ports. A zero address or port means that the rule
// does not specify the address or the port. A range of one value has no last value. The text is the
// same for an extension of xtables and for expressions of nftables.
type Translation struct {
	Kind                            TranslationKind
	Addr, LastAddr                  netip.Addr
	Port, Last                      uint16 // the first and the last port
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

// decodeUnversionedRange decodes the structures of REDIRECT and MASQUERADE, which have one revision
// for both families.
func decodeUnversionedRange(family rules.Family, info []byte) (natRange, bool) {
	if family == rules.IPv4 {
		return decodeRange4(info)
	}
	return decodeRange(family, info, rangeSize)
}

// decodeVersionedRange decodes the structures of DNAT and SNAT. Revision 0 supports only IPv4, and
// the other revisions support both families.
func decodeVersionedRange(family rules.Family, revision uint32, info []byte) (r natRange, ok bool) {
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

// decodeDNAT decodes DNAT.
func decodeDNAT(family rules.Family, x Extension) rules.Action {
	r, ok := decodeVersionedRange(family, x.Revision, x.Data)
	switch {
	case ok && r.Addr.IsValid():
		return rules.DNATTo{Addr: r.Addr, LastAddr: r.LastAddr, Port: r.Port, Last: r.Last}
	case ok && r.Port != 0:
		return rules.DNATPort{Port: r.Port, Last: r.Last}
	}
	return unknownNAT(r, DestinationNAT, x)
}

// encodeDNAT encodes DNAT.
func encodeDNAT(family rules.Family, a rules.DNATTo) (Extension, error) {
	if !a.Addr.IsValid() && a.Port == 0 {
		return Extension{}, errors.New("DNAT needs an address or a port (1-65535)")
	}
	return encodeNAT("DNAT", family, Translation{
		Addr: a.Addr, LastAddr: a.LastAddr, Port: a.Port, Last: a.Last,
	})
}

// encodeNAT encodes the structure of a target in the oldest revision that supports the family.
func encodeNAT(target string, family rules.Family, t Translation) (Extension, error) {
	if err := t.check(family); err != nil {
		return Extension{}, fmt.Errorf("%s: %w", target, err)
	}
	switch {
	case family == rules.IPv4:
		return Extension{Name: target, Data: t.encode4()}, nil
	case target == "REDIRECT":
		return Extension{Name: target, Data: t.encode()}, nil
	}
	return Extension{Name: target, Revision: 1, Data: t.encode()}, nil
}
