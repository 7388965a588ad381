package xt

import (
	"errors"

	"github.com/sluice-mesh/sluice/rules"
)

// Bits of struct xt_owner_match_info: what is asked for, and what must not be so.
const (
	ownerUID    = 1 << 0
	ownerGID    = 1 << 1
	ownerSocket = 1 << 2
)

// ownerSize is that of struct xt_owner_match_info.
const ownerSize = 20

// anybody is all numbers: a packet that somebody sent is one that has a socket. As an id the last
// number does not exist.
var anybody = rules.IDRange{First: 0, Last: ^uint32(0)}

// decodeOwner reads struct xt_owner_match_info. As owner_mt (net/netfilter/xt_owner.c) has it, a
// packet without socket matches where all that is asked for is negated. (Sockets of the kernel
// itself, which have no owner, are no packets of the model.)
func decodeOwner(info []byte) ([]rules.Match, bool) {
	if len(info) < ownerSize {
		return nil, false
	}
	asked, negated := info[16], info[17]
	if asked == 0 || asked&^(ownerUID|ownerGID|ownerSocket) != 0 || negated&^asked != 0 {
		return nil, false
	}
	needsSocket := asked&ownerSocket != 0
	if negated&ownerSocket != 0 {
		return []rules.Match{rules.MatchOwner{Not: true, Socketless: true, IDs: []rules.IDRange{anybody}}}, asked == negated
	}
	var found []rules.Match
	for i, bit := range []byte{ownerUID, ownerGID} {
		if asked&bit == 0 {
			continue
		}
		ids := rules.IDRange{First: native.Uint32(info[8*i:]), Last: native.Uint32(info[8*i+4:])}
		if ids.First > ids.Last || ids.Last == anybody.Last {
			return nil, false
		}
		not := negated&bit != 0
		found = append(found, rules.MatchOwner{Group: bit == ownerGID, Not: not, Socketless: not && !needsSocket, IDs: []rules.IDRange{ids}})
	}
	if len(found) == 0 {
		found = append(found, rules.MatchOwner{IDs: []rules.IDRange{anybody}})
	}
	return found, true
}

// encodeOwner writes one range of users or groups.
func encodeOwner(m rules.MatchOwner) (Extension, error) {
	if len(m.IDs) != 1 || m.Socketless && !m.Not {
		return Extension{}, errors.New("an owner match has one range of ids")
	}
	ids, at, bit := m.IDs[0], 0, byte(ownerUID)
	if m.Group {
		at, bit = 8, ownerGID
	}
	if ids == anybody && !m.Group && m.Not == m.Socketless {
		bit = ownerSocket
	} else if ids.First > ids.Last || ids.Last == anybody.Last {
		return Extension{}, errors.New("the range has no id or the last number, which is none")
	}
	data := make([]byte, ownerSize)
	if bit != ownerSocket {
		native.PutUint32(data[at:], ids.First)
		native.PutUint32(data[at+4:], ids.Last)
	}
	data[16] = bit | flag(m.Not && !m.Socketless, ownerSocket)
	data[17] = flag(m.Not, bit)
	return Extension{Name: "owner", Revision: 1, Data: data}, nil
}
