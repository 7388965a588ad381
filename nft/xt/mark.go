package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// markMatchSize is that of struct xt_mark_mtinfo1 and xt_connmark_mtinfo1, which are alike.
const markMatchSize = 12

func decodeMarkMatch(info []byte, conntrack bool) ([]rules.Match, bool) {
	if len(info) < markMatchSize || info[8] > 1 {
		return nil, false
	}
	return []rules.Match{rules.MatchMark{
		Conntrack: conntrack, Not: info[8] != 0, Value: native.Uint32(info), Mask: native.Uint32(info[4:]),
	}}, true
}

func encodeMarkMatch(m rules.MatchMark) Extension {
	x := Extension{Name: "mark", Revision: 1, Data: make([]byte, markMatchSize)}
	if m.Conntrack {
		x.Name = "connmark"
	}
	native.PutUint32(x.Data, m.Value)
	native.PutUint32(x.Data[4:], m.Mask)
	x.Data[8] = flag(m.Not, 1)
	return x
}

// flag returns the bit if it is to be set.
func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// decodeMark reads struct xt_mark_tginfo2: the mark loses the bits of the mask and is then xored
// with the value.
func decodeMark(info []byte) rules.Action {
	if len(info) < 8 {
		return nil
	}
	return rules.SetMark{Value: native.Uint32(info), Mask: native.Uint32(info[4:])}
}

func encodeMark(a rules.SetMark) Extension {
	data := native.AppendUint32(native.AppendUint32(nil, a.Value), a.Mask)
	return Extension{Name: "MARK", Revision: 2, Data: data}
}

// A connmark is struct xt_connmark_tginfo1 or 2. What connmark_tg (net/netfilter/xt_connmark.c)
// makes of it, by mode, unless the copied bits are shifted:
//
//	set:     the connection's mark loses the bits of conntrackMask and is xored with value
//	save:    the same, xored with the bits of packetMask of the packet's mark
//	restore: the packet's mark loses the bits of packetMask and is xored with the bits of
//	         conntrackMask of the connection's mark
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

// connmarkSize is that of struct xt_connmark_tginfo1 and 2.
const connmarkSize = 16

// connmarkModeAt is where the structures have the mode, by revision.
var connmarkModeAt = [...]int{1: 12, 2: 14}

// connmarkShiftAt is where revision 2 has the number of bits by which the mark is shifted.
const connmarkShiftAt = 13

// decodeConnmark reads struct xt_connmark_tginfo1 or 2.
func decodeConnmark(x Extension) rules.Action {
	if len(x.Data) < connmarkSize {
		return nil
	}
	c := connmark{
		mode: x.Data[connmarkModeAt[x.Revision]], value: native.Uint32(x.Data),
		conntrackMask: native.Uint32(x.Data[4:]), packetMask: native.Uint32(x.Data[8:]),
	}
	if x.Revision == 2 && x.Data[connmarkShiftAt] != 0 {
		switch c.mode {
		case connmarkSet, connmarkSave:
			return unknownTarget(x, rules.WritesConntrackMark)
		case connmarkRestore:
			return unknownTarget(x, rules.WritesMark)
		}
		return nil
	}
	const all = ^uint32(0)
	whole := c.conntrackMask == all && c.packetMask == all
	switch {
	case c.mode == connmarkSave && whole:
		return rules.SaveMark{}
	case c.mode == connmarkRestore && whole:
		return rules.RestoreMark{}
	}
	switch c.mode {
	case connmarkSet:
		return rules.MixMark{Conntrack: true, ConntrackMark: ^c.conntrackMask, Xor: c.value}
	case connmarkSave:
		return rules.MixMark{Conntrack: true, ConntrackMark: ^c.conntrackMask, Mark: c.packetMask}
	case connmarkRestore:
		if c.conntrackMask == 0 {
			// It reads nothing of the connection, and yet does nothing without one.
			return unknownTarget(x, rules.WritesMark)
		}
		return rules.MixMark{Mark: ^c.packetMask, ConntrackMark: c.conntrackMask}
	}
	return nil
}

// wholeConnmark copies all bits.
func wholeConnmark(mode byte) connmark {
	return connmark{mode: mode, conntrackMask: ^uint32(0), packetMask: ^uint32(0)}
}

func encodeConnmark(c connmark) Extension {
	data := make([]byte, connmarkSize)
	native.PutUint32(data, c.value)
	native.PutUint32(data[4:], c.conntrackMask)
	native.PutUint32(data[8:], c.packetMask)
	data[connmarkModeAt[1]] = c.mode
	return Extension{Name: "CONNMARK", Revision: 1, Data: data}
}

// encodeMixMark writes a mark that is made of at most one other mark and, for a connection's mark
// that is made of itself alone, of a constant.
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
		return Extension{}, fmt.Errorf("%s: CONNMARK copies a mark or sets one, but not both", a)
	}
	return encodeConnmark(c), nil
}
