// Package xt reads the matches and targets of xtables into the model. Both kinds of iptables have them in the kernel's
// structures (linux/netfilter/xt_*.h): iptables-legacy in its tables, iptables-nft in its rules' "match" and "target" expressions.
//
// It knows those that istio-iptables writes into built-in chains. Any other, another revision and another use of a known one is
// [rules.Unknown], never a guess. The numbers in the structures are in the machine's byte order.
package xt

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

var native = binary.NativeEndian

// Match returns what a match asks for: usually one condition, two for an owner's user and group. Info may be longer than the
// kernel's structure, by padding.
func Match(name string, revision uint32, info []byte) []rules.Match {
	var found []rules.Match
	switch {
	case name == "mark" && revision == 1:
		found = mark(info, false)
	case name == "connmark" && revision == 1:
		found = mark(info, true)
	case name == "owner" && revision == 1:
		found = owner(info)
	}
	if found == nil {
		return []rules.Match{rules.Unknown{Text: fmt.Sprintf("match %s revision %d", name, revision)}}
	}
	return found
}

// mark reads struct xt_mark_mtinfo1 or xt_connmark_mtinfo1, which are alike.
func mark(info []byte, conntrack bool) []rules.Match {
	if len(info) < 9 || info[8] > 1 {
		return nil
	}
	return []rules.Match{rules.MatchMark{
		Conntrack: conntrack, Not: info[8] != 0, Value: native.Uint32(info), Mask: native.Uint32(info[4:]),
	}}
}

// Bits of xt_owner_match_info.
const (
	ownerUID = 1 << 0
	ownerGID = 1 << 1
)

// owner reads struct xt_owner_match_info. A negated one matches packets without a socket too (owner_mt in net/netfilter/xt_owner.c).
func owner(info []byte) []rules.Match {
	if len(info) < 18 {
		return nil
	}
	asked, negated := info[16], info[17]
	if asked == 0 || (asked|negated)&^(ownerUID|ownerGID) != 0 {
		return nil
	}
	var found []rules.Match
	for i, bit := range []byte{ownerUID, ownerGID} {
		if asked&bit == 0 {
			continue
		}
		first, last := native.Uint32(info[8*i:]), native.Uint32(info[8*i+4:])
		if first > last {
			return nil
		}
		not := negated&bit != 0
		found = append(found, rules.MatchOwner{
			Group: bit == ownerGID, Not: not, Socketless: not, IDs: []rules.IDRange{{First: first, Last: last}},
		})
	}
	return found
}

// Target returns what a target does.
func Target(name string, revision uint32, info []byte) rules.Action {
	var found rules.Action
	switch {
	case name == "MARK" && revision == 2:
		found = setMark(info)
	case name == "CONNMARK" && (revision == 1 || revision == 2):
		found = connmark(revision, info)
	}
	if found == nil {
		return rules.Unknown{Text: fmt.Sprintf("target %s revision %d", name, revision)}
	}
	return found
}

// setMark reads struct xt_mark_tginfo2: the mark loses the bits of the mask and is then xored with the value.
func setMark(info []byte) rules.Action {
	if len(info) < 8 {
		return nil
	}
	value, mask := native.Uint32(info), native.Uint32(info[4:])
	if value&^mask != 0 {
		return nil // bits are flipped
	}
	return rules.SetMark{Value: value, Mask: mask}
}

// Modes of xt_connmark_tginfo.
const (
	connmarkSave    = 1
	connmarkRestore = 2
)

// connmark reads struct xt_connmark_tginfo1 or 2, where all bits are copied.
func connmark(revision uint32, info []byte) rules.Action {
	modeAt := map[uint32]int{1: 12, 2: 14}[revision]
	if len(info) <= modeAt {
		return nil
	}
	conntrackMask, packetMask := native.Uint32(info[4:]), native.Uint32(info[8:])
	shifted := revision == 2 && info[13] != 0
	if conntrackMask != ^uint32(0) || packetMask != ^uint32(0) || shifted {
		return nil
	}
	switch info[modeAt] {
	case connmarkSave:
		return rules.SaveMark{}
	case connmarkRestore:
		return rules.RestoreMark{}
	}
	return nil
}
