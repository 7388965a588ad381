package save

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// targetMark parses the target MARK.
func (r *moduleReader) targetMark() rules.Action {
	o := r.exactlyOne("--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark")
	if o == nil {
		return nil
	}
	value, mask := r.xmark(o)
	return rules.SetMark{Value: value, Mask: mask}
}

// targetConnmark parses the target CONNMARK (connmark_tg in net/netfilter/xt_connmark.c).
func (r *moduleReader) targetConnmark() rules.Action {
	o := r.exactlyOne("--save-mark", "--restore-mark",
		"--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark")
	if o == nil {
		return nil
	}
	r.effect = rules.WritesConntrackMark
	if o.name == "--restore-mark" {
		r.effect = rules.WritesMark
	}
	if o.name != "--save-mark" && o.name != "--restore-mark" {
		value, mask := r.xmark(o)
		r.isUnknown = len(r.options) > 1
		return rules.MixMark{Conntrack: true, ConntrackMark: ^mask, Xor: value}
	}
	packetMask, connectionMask := allBits, allBits
	for _, other := range r.options {
		switch other.name {
		case "--nfmask":
			packetMask = r.mask(&other)
		case "--ctmask":
			connectionMask = r.mask(&other)
		case "--mask":
			packetMask = r.mask(&other)
			connectionMask = packetMask
			r.isUnknown = r.isUnknown || len(r.options) > 2
		case "--left-shift-mark", "--right-shift-mark":
			r.isUnknown = true
		}
	}
	if o.name == "--restore-mark" {
		return r.restoreMark(packetMask, connectionMask)
	}
	if packetMask == allBits && connectionMask == allBits {
		return rules.SaveMark{}
	}
	return rules.MixMark{Conntrack: true, Mark: packetMask, ConntrackMark: ^connectionMask}
}

// restoreMark returns the action that copies bits of the connection's mark to the packet's mark. If
// the mask of the connection's mark is 0, the action is unknown: a [rules.MixMark] that does not
// read the connection's mark would change packets without a connection, which the target does not
// change.
func (r *moduleReader) restoreMark(packetMask, connectionMask uint32) rules.Action {
	if packetMask == allBits && connectionMask == allBits {
		return rules.RestoreMark{}
	}
	r.isUnknown = r.isUnknown || connectionMask == 0
	return rules.MixMark{Mark: ^packetMask, ConntrackMark: connectionMask}
}

// xmark parses one of the five options that change a mark. Each is equivalent to --set-xmark, which
// clears the bits of a mask and then XORs the result with a value.
func (r *moduleReader) xmark(o *option) (value, mask uint32) {
	value, mask = r.mark(o.values[0])
	isMasked := o.name == "--set-xmark" || o.name == "--set-mark"
	if strings.Contains(o.values[0].text, "/") && !isMasked {
		r.fail(o.values[0], "bits without a mask")
	}
	switch o.name {
	case "--set-mark":
		mask |= value
	case "--and-mark":
		value, mask = 0, ^value
	case "--or-mark":
		mask = value
	case "--xor-mark":
		mask = 0
	}
	return value, mask
}

// mask parses a mask of 32 bits.
func (r *moduleReader) mask(o *option) uint32 {
	n, ok := number(o.values[0].text, 32)
	if !ok {
		r.fail(o.values[0], "a mask of 32 bits")
	}
	return uint32(n)
}

const allBits = ^uint32(0)

// addMixMark writes the target CONNMARK with one of its three operations: set the connection's
// mark, save the packet's mark to the connection's mark, or restore the packet's mark from the
// connection's mark.
func (p *rulePrinter) addMixMark(a rules.MixMark) error {
	addMasked := func(option string, packetMask, connectionMask uint32) error {
		return p.addTarget(a, "", "CONNMARK", option, "--nfmask", fmt.Sprintf("0x%x", packetMask),
			"--ctmask", fmt.Sprintf("0x%x", connectionMask))
	}
	switch {
	case a.Conntrack && a.Mark == 0:
		return p.addTarget(a, "", "CONNMARK", "--set-xmark", maskedMark(a.Xor, ^a.ConntrackMark))
	case a.Conntrack && a.Xor == 0:
		return addMasked("--save-mark", a.Mark, ^a.ConntrackMark)
	case !a.Conntrack && a.Xor == 0 && a.ConntrackMark != 0:
		return addMasked("--restore-mark", ^a.Mark, a.ConntrackMark)
	}
	return fmt.Errorf("%s: iptables has no such target", a)
}

// maskedMark returns the text "VALUE/MASK".
func maskedMark(value, mask uint32) string { return fmt.Sprintf("0x%x/0x%x", value, mask) }
