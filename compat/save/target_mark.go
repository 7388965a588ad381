package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// setMark parses the target MARK.
func (r *moduleReader) setMark() rules.Action {
	o := r.exactlyOne("--set-xmark", "--set-mark", "--and-mark", "--or-mark", "--xor-mark")
	if o == nil {
		return nil
	}
	value, mask := r.xmark(o)
	return rules.SetMark{Value: value, Mask: mask}
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

// connmark parses the target CONNMARK (connmark_tg in net/netfilter/xt_connmark.c).
func (r *moduleReader) connmark() rules.Action {
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
	packet, connection := allBits, allBits
	for _, other := range r.options {
		switch other.name {
		case "--nfmask":
			packet = r.mask(&other)
		case "--ctmask":
			connection = r.mask(&other)
		case "--mask":
			packet = r.mask(&other)
			connection = packet
			r.isUnknown = r.isUnknown || len(r.options) > 2
		case "--left-shift-mark", "--right-shift-mark":
			r.isUnknown = true
		}
	}
	if o.name == "--restore-mark" {
		return r.restoreMark(packet, connection)
	}
	if packet == allBits && connection == allBits {
		return rules.SaveMark{}
	}
	return rules.MixMark{Conntrack: true, Mark: packet, ConntrackMark: ^connection}
}

// restoreMark returns the action that copies bits of the connection's mark to the packet's mark.
// The arguments are the masks of both marks. With the mask 0 for the connection's mark the action
// is unknown.
func (r *moduleReader) restoreMark(packet, connection uint32) rules.Action {
	if packet == allBits && connection == allBits {
		return rules.RestoreMark{}
	}
	r.isUnknown = r.isUnknown || connection == 0
	return rules.MixMark{Mark: ^packet, ConntrackMark: connection}
}

// mask parses a mask of 32 bits.
func (r *moduleReader) mask(o *option) uint32 {
	n, ok := number(o.values[0].text, 32)
	if !ok {
		r.fail(o.values[0], "bits of 32")
	}
	return uint32(n)
}

const allBits = ^uint32(0)
