package xt

import (
	"errors"

	"github.com/sluice-mesh/sluice/rules"
)

// Bits of struct xt_owner_match_info, for compared fields and for negated fields.
const (
	ownerUID    = 1 << 0
	ownerGID    = 1 << 1
	ownerSocket = 1 << 2
)

// ownerSize is the size of struct xt_owner_match_info: the range of users, the range of groups, the
// bits of the compared fields at offset 16, and the bits of the negated fields at offset 17.
const ownerSize = 20

// allIDs is the range of all numbers. It matches every packet of a process's socket, because such a
// socket has an owner. The last number is not a valid id.
var allIDs = rules.IDRange{First: 0, Last: ^uint32(0)}

// decodeOwner decodes struct xt_owner_match_info. A packet without a socket matches if all compared
// fields are negated (owner_mt in net/netfilter/xt_owner.c). The model does not support sockets of
// the kernel, which have no owner.
func decodeOwner(info []byte) ([]rules.Match, bool) {
	if len(info) < ownerSize {
		return nil, false
	}
	flags, negated := info[16], info[17]
	if flags == 0 || flags&^(ownerUID|ownerGID|ownerSocket) != 0 || negated&^flags != 0 {
		return nil, false
	}
	needsSocket := flags&ownerSocket != 0
	if negated&ownerSocket != 0 {
		return []rules.Match{rules.MatchOwner{
			Not: true, Socketless: true, IDs: []rules.IDRange{allIDs},
		}}, flags == negated
	}
	var found []rules.Match
	for i, bit := range []byte{ownerUID, ownerGID} {
		if flags&bit == 0 {
			continue
		}
		ids := rules.IDRange{First: native.Uint32(info[8*i:]), Last: native.Uint32(info[8*i+4:])}
		if ids.First > ids.Last || ids.Last == allIDs.Last {
			return nil, false
		}
		not := negated&bit != 0
		found = append(found, rules.MatchOwner{
			Group: bit == ownerGID, Not: not, Socketless: not && !needsSocket,
			IDs: []rules.IDRange{ids},
		})
	}
	if len(found) == 0 {
		found = append(found, rules.MatchOwner{IDs: []rules.IDRange{allIDs}})
	}
	return found, true
}

// encodeOwner encodes one range of users or groups.
func encodeOwner(m rules.MatchOwner) (Extension, error) {
	if len(m.IDs) != 1 {
		return Extension{}, errors.New("an owner match must have exactly one range of ids")
	}
	if m.Socketless && !m.Not {
		return Extension{}, errors.New(
			"an owner match that is not negated matches no packet without a socket")
	}
	ids, offset, bit := m.IDs[0], 0, byte(ownerUID)
	if m.Group {
		offset, bit = 8, ownerGID
	}
	if ids == allIDs && !m.Group && m.Not == m.Socketless {
		bit = ownerSocket
	} else if ids.First > ids.Last || ids.Last == allIDs.Last {
		return Extension{}, errors.New(
			"the range must not be empty or contain the invalid id 4294967295")
	}
	data := make([]byte, ownerSize)
	if bit != ownerSocket {
		native.PutUint32(data[offset:], ids.First)
		native.PutUint32(data[offset+4:], ids.Last)
	}
	data[16] = bit | flag(m.Not && !m.Socketless, ownerSocket)
	data[17] = flag(m.Not, bit)
	return Extension{Name: "owner", Revision: 1, Data: data}, nil
}
