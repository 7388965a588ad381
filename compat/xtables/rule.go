package xtables

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// A Rule is a rule of a chain in the kernel's format.
type Rule struct {
	positionedEntry
	layout *layout
	// jump is the chain that the rule jumps to, or empty.
	jump string
	// fallsThrough is set if the rule has no target: the packet continues with the next entry.
	fallsThrough bool
}

// A Verdict is a verdict in the kernel's numbers.
type Verdict int32

// The verdicts. Continue is the verdict of a rule without a target. The kernel's entries never
// contain Continue, because non-negative numbers in entries are offsets.
const (
	Continue Verdict = 0
	Drop     Verdict = -1 // -NF_DROP - 1
	Accept   Verdict = -2 // -NF_ACCEPT - 1
	Queue    Verdict = -4 // -NF_QUEUE - 1
	Return   Verdict = -5 // XT_RETURN
)

// extensionAt returns the match or target at the offset. Its data refers to the memory of the
// entry. The entry must be well-formed; see checkEntry.
func extensionAt(e entry, at int) xt.Extension {
	size := int(byteOrder.Uint16(e[at:]))
	return xt.Extension{
		Name:     unix.ByteSliceToString(e[at+extensionNameOffset : at+extensionRevisionOffset]),
		Revision: uint32(e[at+extensionRevisionOffset]),
		Data:     e[at+extensionSize : at+size : at+size],
	}
}

// Matches returns the rule's matches in order. Their data, which may end with padding, refers to
// the memory of the rule and must not be changed.
func (r *Rule) Matches() []xt.Extension {
	var matches []xt.Extension
	target := r.layout.targetOf(r.entry)
	for at := r.layout.headerSize; at < target; at += int(byteOrder.Uint16(r.entry[at:])) {
		matches = append(matches, extensionAt(r.entry, at))
	}
	return matches
}

// Target returns the target extension of the rule. Its name is empty for a verdict or a jump. For
// its data see [Rule.Matches].
func (r *Rule) Target() xt.Extension { return extensionAt(r.entry, r.layout.targetOf(r.entry)) }

// Verdict returns the verdict of the rule. It returns false if the rule has a jump or a target
// extension instead.
func (r *Rule) Verdict() (Verdict, bool) {
	switch {
	case !r.layout.isStandard(r.entry) || r.jump != "":
		return 0, false
	case r.fallsThrough:
		return Continue, true
	}
	return Verdict(verdictOf(r.entry, r.layout.targetOf(r.entry))), true
}

// Jump returns the chain that the rule jumps to, or an empty name. isGoto reports whether the jump
// is a goto (-g).
func (r *Rule) Jump() (chain string, isGoto bool) {
	return r.jump, r.jump != "" && r.entry[r.layout.flags]&r.layout.gotoFlag != 0
}

// Hits returns the value of the rule's counter when the table was read.
func (r *Rule) Hits() rules.Hits { return r.layout.countersOf(r.entry) }

// Identity returns the header, the matches and the target of the rule as bytes. Two rules of the
// same family are equal if their identities are equal.
func (r *Rule) Identity() string {
	e := r.layout.withoutKernelFields(r.entry)
	if r.jump != "" || r.fallsThrough {
		// The target contains the offset of an entry, which depends on the other rules.
		at := r.layout.targetOf(r.entry) + extensionSize
		clear(e[at : at+4])
	}
	return fmt.Sprint(r.jump, r.fallsThrough, string(e))
}

// WithCounterOf returns the rule with the counter of old, which must be a rule of the table to
// which the result will be added. [Replace] adds the value of old's counter to the counter of the
// result.
func (r Rule) WithCounterOf(old *Rule) Rule {
	r.oldPosition = old.oldPosition
	return r
}

// A Header contains the conditions in the header of a rule: struct ipt_ip or ip6t_ip6.
type Header struct {
	Source, Destination Address
	In, Out             Interface
	// Protocol is compared if it is not 0, and in IPv6 only if Flags contains FlagProtocol6.
	Protocol uint16
	// TOS is the traffic class of IPv6, with FlagTOS6. The kernel does not compare it.
	TOS uint8
	// Flags contains bits such as FlagGoto4 of the family. Invert contains bits such as InvertIn.
	Flags, Invert uint8
}

// An Address is compared with the address of a packet, in the bits that are set in the mask. The
// mask need not be a prefix.
type Address struct{ Addr, Mask netip.Addr }

// An Interface is compared with the name of an interface, in the bits that are set in the mask. A
// mask of zeros matches every interface.
type Interface struct{ Name, Mask [unix.IFNAMSIZ]byte }

// Bits of Header.Flags in struct ipt_ip and in struct ip6t_ip6.
const (
	FlagFragment4 = 0x01 // IPT_F_FRAG: second and further fragments
	FlagGoto4     = 0x02 // IPT_F_GOTO
	FlagProtocol6 = 0x01 // IP6T_F_PROTO
	FlagTOS6      = 0x02 // IP6T_F_TOS
	FlagGoto6     = 0x04 // IP6T_F_GOTO
)

// Bits of Header.Invert: inverted conditions.
const (
	InvertIn          = 0x01 // IPT_INV_VIA_IN
	InvertOut         = 0x02 // IPT_INV_VIA_OUT
	InvertTOS         = 0x04 // IPT_INV_TOS
	InvertSource      = 0x08 // IPT_INV_SRCIP
	InvertDestination = 0x10 // IPT_INV_DSTIP
	InvertFragment    = 0x20 // IPT_INV_FRAG
	InvertProtocol    = 0x40 // XT_INV_PROTO
)

// Header returns the header of the rule.
func (r *Rule) Header() Header {
	e, l := r.entry, r.layout
	address := func(n int) netip.Addr {
		a, _ := netip.AddrFromSlice(e[n*l.addressSize : (n+1)*l.addressSize])
		return a
	}
	name := func(n int) (b [unix.IFNAMSIZ]byte) {
		copy(b[:], e[4*l.addressSize+n*len(b):])
		return b
	}
	h := Header{
		Source:      Address{address(0), address(2)},
		Destination: Address{address(1), address(3)},
		In:          Interface{name(0), name(2)},
		Out:         Interface{name(1), name(3)},
		Protocol:    byteOrder.Uint16(e[l.protocol:]),
		Flags:       e[l.flags], Invert: e[l.invert],
	}
	if l.family == rules.IPv6 {
		h.TOS = e[l.protocol+2]
	}
	return h
}
