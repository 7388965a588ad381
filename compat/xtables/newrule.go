package xtables

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// A Target is the target of a rule: a jump, an extension or a verdict.
type Target struct {
	// Chain is the chain to jump to, or empty. If Goto is set, packets do not return to the chain
	// of the rule.
	Chain string
	Goto  bool
	// Extension is a target extension. Its name is empty if the target is a jump or a verdict.
	Extension xt.Extension
	// Verdict is the verdict of a rule without chain and extension. The zero value continues with
	// the next rule.
	Verdict Verdict
}

// NewRule returns a rule for tables of the family, IPv4 or IPv6, that evaluates the header and then
// each match in order. It sets the goto flag of the header from the target, and pads the data of
// extensions. It does not validate the data of extensions, because the kernel does so. [Replace]
// checks that the chain of the target exists.
func NewRule(family rules.Family, h Header, matches []xt.Extension, target Target) (Rule, error) {
	l, err := layoutOf(family)
	if err != nil {
		return Rule{}, err
	}
	for _, x := range append(slices.Clone(matches), target.Extension) {
		if len(x.Name) >= extensionNameSize {
			return Rule{}, fmt.Errorf(
				"%q is not a name of a match or target: must have at most %d bytes", x.Name,
				extensionNameSize-1)
		}
	}
	r := Rule{layout: l, jump: target.Chain}
	switch x := target.Extension; {
	case target.Chain != "" && x.Name != "",
		target.Chain != "" && target.Verdict != Continue,
		x.Name != "" && target.Verdict != Continue:
		return Rule{}, errors.New("a rule must have at most one of chain, extension and verdict")
	case target.Chain != "":
		// Replace writes the offset of the chain instead of the verdict.
		r.entry = l.newEntry(matches, verdictTarget(0))
	case x.Name != "":
		r.entry = l.newEntry(matches, x)
	default:
		r.fallsThrough = target.Verdict == Continue
		r.entry = l.newEntry(matches, verdictTarget(target.Verdict))
	}
	if len(r.entry) > math.MaxUint16 {
		return Rule{}, fmt.Errorf("the rule has %d bytes, more than the maximum of %d",
			len(r.entry), math.MaxUint16)
	}
	h.Flags &^= l.gotoFlag
	if target.Goto && target.Chain != "" {
		h.Flags |= l.gotoFlag
	}
	return r, l.putHeader(r.entry, h)
}

// newEntry returns an entry with the matches and the target, and without conditions in the header.
func (l *layout) newEntry(matches []xt.Extension, target xt.Extension) entry {
	e := make(entry, l.headerSize, l.headerSize+standardSize)
	for _, x := range matches {
		e = appendExtension(e, x)
	}
	byteOrder.PutUint16(e[l.targetOffset:], uint16(len(e)))
	e = appendExtension(e, target)
	byteOrder.PutUint16(e[l.nextOffset:], uint16(len(e)))
	return e
}

// appendExtension appends a match or a target.
func appendExtension(e entry, x xt.Extension) entry {
	size := (extensionSize + len(x.Data) + alignment - 1) / alignment * alignment
	b := make([]byte, size)
	byteOrder.PutUint16(b, uint16(size))
	copy(b[extensionNameOffset:extensionRevisionOffset], x.Name)
	b[extensionRevisionOffset] = uint8(x.Revision)
	copy(b[extensionSize:], x.Data)
	return append(e, b...)
}

// verdictTarget returns the standard target, which has no name, with a verdict.
func verdictTarget(v Verdict) xt.Extension {
	return xt.Extension{Data: byteOrder.AppendUint32(nil, uint32(v))}
}

// putHeader writes the header of the entry.
func (l *layout) putHeader(e entry, h Header) error {
	for i, a := range []netip.Addr{
		h.Source.Addr, h.Destination.Addr, h.Source.Mask, h.Destination.Mask,
	} {
		if !a.IsValid() {
			continue // the rule does not compare the address
		}
		if len(a.AsSlice()) != l.addressSize {
			return fmt.Errorf("address %s is not allowed in a rule of family %s", a, l.family)
		}
		copy(e[i*l.addressSize:], a.AsSlice())
	}
	copy(e[4*l.addressSize:],
		slices.Concat(h.In.Name[:], h.Out.Name[:], h.In.Mask[:], h.Out.Mask[:]))
	byteOrder.PutUint16(e[l.protocol:], h.Protocol)
	e[l.flags], e[l.invert] = h.Flags, h.Invert
	if l.family == rules.IPv6 {
		e[l.protocol+2] = h.TOS // follows the 16 bits of proto in struct ip6t_ip6
	}
	return nil
}

// NamedInterface returns an Interface that matches only the name or, if prefix is set, every name
// that begins with it.
func NamedInterface(name string, prefix bool) (Interface, error) {
	var i Interface
	if n := len(i.Name); name == "" || len(name) >= n {
		return i, fmt.Errorf("%q is not an interface name: must have 1 to %d bytes", name, n-1)
	}
	compared := len(name)
	if !prefix {
		compared++ // the terminating zero
	}
	copy(i.Name[:], name)
	copy(i.Mask[:], bytes.Repeat([]byte{0xff}, compared))
	return i, nil
}
