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

// decodeMark reads struct xt_mark_tginfo2: the mark loses the bits of the mask and is then xored with the value.
func decodeMark(info []byte) rules.Action {
	if len(info) < 8 {
		return nil
	}
	value, mask := native.Uint32(info), native.Uint32(info[4:])
	if value&^mask != 0 {
		return nil // bits are flipped
	}
	return rules.SetMark{Value: value, Mask: mask}
}

func encodeMark(a rules.SetMark) (Extension, error) {
	if a.Value&^a.Mask != 0 {
		return Extension{}, fmt.Errorf("%s: bits of the value are outside of the mask 0x%x", a, a.Mask)
	}
	data := native.AppendUint32(native.AppendUint32(nil, a.Value), a.Mask)
	return Extension{Name: "MARK", Revision: 2, Data: data}, nil
}

// Modes of struct xt_connmark_tginfo1.
const (
	connmarkSave    = 1
	connmarkRestore = 2
)

// connmarkSize is that of struct xt_connmark_tginfo1 and 2.
const connmarkSize = 16

// connmarkModeAt is where the structures have the mode, by revision.
var connmarkModeAt = [...]int{1: 12, 2: 14}

// decodeConnmark reads struct xt_connmark_tginfo1 or 2, where all bits are copied.
func decodeConnmark(revision uint32, info []byte) rules.Action {
	if len(info) < connmarkSize {
		return nil
	}
	conntrackMask, packetMask := native.Uint32(info[4:]), native.Uint32(info[8:])
	shifted := revision == 2 && info[13] != 0
	if conntrackMask != ^uint32(0) || packetMask != ^uint32(0) || shifted {
		return nil
	}
	switch info[connmarkModeAt[revision]] {
	case connmarkSave:
		return rules.SaveMark{}
	case connmarkRestore:
		return rules.RestoreMark{}
	}
	return nil
}

func encodeConnmark(mode byte) Extension {
	data := make([]byte, connmarkSize)
	native.PutUint32(data[4:], ^uint32(0))
	native.PutUint32(data[8:], ^uint32(0))
	data[connmarkModeAt[1]] = mode
	return Extension{Name: "CONNMARK", Revision: 1, Data: data}
}
