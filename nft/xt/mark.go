package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// Offsets and the size of struct xt_mark_mtinfo1 and xt_connmark_mtinfo1, which have the same
// layout. The value is at offset 0.
const (
	markMatchMask   = 4
	markMatchInvert = 8
	markMatchSize   = 12
)

// decodeMarkMatch decodes a match of the packet's mark, or of the connection's mark if conntrack is
// true.
func decodeMarkMatch(info []byte, conntrack bool) ([]rules.Match, bool) {
	if len(info) < markMatchSize || info[markMatchInvert] > 1 {
		return nil, false
	}
	return []rules.Match{rules.MatchMark{
		Conntrack: conntrack, Not: info[markMatchInvert] != 0, Value: native.Uint32(info),
		Mask: native.Uint32(info[markMatchMask:]),
	}}, true
}

// encodeMarkMatch encodes a match of a mark.
func encodeMarkMatch(m rules.MatchMark) Extension {
	x := Extension{Name: "mark", Revision: 1, Data: make([]byte, markMatchSize)}
	if m.Conntrack {
		x.Name = "connmark"
	}
	native.PutUint32(x.Data, m.Value)
	native.PutUint32(x.Data[markMatchMask:], m.Mask)
	x.Data[markMatchInvert] = flag(m.Not, 1)
	return x
}

// flag returns the bit if set is true, otherwise 0.
func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// decodeMark decodes struct xt_mark_tginfo2, which sets the mark to (mark &^ mask) ^ value.
func decodeMark(info []byte) rules.Action {
	if len(info) < 8 {
		return nil
	}
	return rules.SetMark{Value: native.Uint32(info), Mask: native.Uint32(info[4:])}
}

// encodeMark encodes a struct xt_mark_tginfo2.
func encodeMark(a rules.SetMark) Extension {
	data := native.AppendUint32(native.AppendUint32(nil, a.Value), a.Mask)
	return Extension{Name: "MARK", Revision: 2, Data: data}
}

// A connmark is struct xt_connmark_tginfo1 or 2. The modes have these effects (connmark_tg in
// net/netfilter/xt_connmark.c) unless bits are shifted:
//
//	set:     ct mark = (ct mark &^ conntrackMask) ^ value
//	save:    ct mark = (ct mark &^ conntrackMask) ^ (mark & packetMask)
//	restore: mark = (mark &^ packetMask) ^ (ct mark & conntrackMask)
type connmark struct {
	mode                             byte
	value, conntrackMask, packetMask uint32
}

// Modes of a connmark.
const (
	connmarkSet     = 0
	connmarkSave    = 1
	connmarkRestore = 2
)

// connmarkSize is the size of struct xt_connmark_tginfo1 and 2.
const connmarkSize = 16

// connmarkModeOffset contains the offsets of the mode by revision.
var connmarkModeOffset = [...]int{1: 12, 2: 14}

// connmarkShiftOffset is the offset of the number of shifted bits in revision 2.
const connmarkShiftOffset = 13

// decodeConnmark decodes struct xt_connmark_tginfo1 or 2.
func decodeConnmark(x Extension) rules.Action {
	if len(x.Data) < connmarkSize {
		return nil
	}
	c := connmark{
		mode: x.Data[connmarkModeOffset[x.Revision]], value: native.Uint32(x.Data),
		conntrackMask: native.Uint32(x.Data[4:]), packetMask: native.Uint32(x.Data[8:]),
	}
	const allBits = ^uint32(0)
	copiesAllBits := c.conntrackMask == allBits && c.packetMask == allBits
	isShifted := x.Revision == 2 && x.Data[connmarkShiftOffset] != 0
	switch {
	case c.mode > connmarkRestore:
		return nil
	case isShifted && c.mode != connmarkRestore:
		return unknownTarget(x, rules.WritesConntrackMark)
	case isShifted, c.mode == connmarkRestore && c.conntrackMask == 0:
		// With the mask 0, the result does not depend on the connection's mark, but the target has
		// no effect on packets without a connection.
		return unknownTarget(x, rules.WritesMark)
	case c.mode == connmarkSet:
		return rules.MixMark{Conntrack: true, ConntrackMark: ^c.conntrackMask, Xor: c.value}
	case c.mode == connmarkSave && copiesAllBits:
		return rules.SaveMark{}
	case c.mode == connmarkSave:
		return rules.MixMark{Conntrack: true, ConntrackMark: ^c.conntrackMask, Mark: c.packetMask}
	case copiesAllBits:
		return rules.RestoreMark{}
	}
	return rules.MixMark{Mark: ^c.packetMask, ConntrackMark: c.conntrackMask}
}

// encodeConnmark encodes a struct xt_connmark_tginfo1.
func encodeConnmark(c connmark) Extension {
	data := make([]byte, connmarkSize)
	native.PutUint32(data, c.value)
	native.PutUint32(data[4:], c.conntrackMask)
	native.PutUint32(data[8:], c.packetMask)
	data[connmarkModeOffset[1]] = c.mode
	return Extension{Name: "CONNMARK", Revision: 1, Data: data}
}

// encodeMixMark encodes a mark that depends on at most one other mark. A constant is supported only
// for a connection's mark that does not depend on the packet's mark.
func encodeMixMark(a rules.MixMark) (Extension, error) {
	var c connmark
	switch {
	case !a.Conntrack && a.Xor == 0:
		c = connmark{mode: connmarkRestore, conntrackMask: a.ConntrackMark, packetMask: ^a.Mark}
	case a.Conntrack && a.Mark == 0:
		c = connmark{mode: connmarkSet, value: a.Xor, conntrackMask: ^a.ConntrackMark}
	case a.Conntrack && a.Xor == 0:
		c = connmark{mode: connmarkSave, conntrackMask: ^a.ConntrackMark, packetMask: a.Mark}
	default:
		return Extension{}, fmt.Errorf("%s: CONNMARK can either copy a mark or set a value", a)
	}
	return encodeConnmark(c), nil
}
