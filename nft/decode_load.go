package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// field is what an expression loads. The first five values are not packet fields that the model
// supports.
type field uint8

const (
	fieldNone field = iota
	fieldConstant
	fieldUnknown // a value that the model does not support
	fieldNumber  // a random or calculated number
	fieldMapped  // the value of a map
	fieldIn
	fieldOut
	fieldInIndex
	fieldOutIndex
	fieldFamily
	fieldProtocol
	fieldSource
	fieldDestination
	fieldSourcePort
	fieldDestinationPort
	fieldPorts
	fieldTCPFlags
	fieldICMPType
	fieldICMPCode
	fieldICMPTypeCode
	fieldUID
	fieldGID
	fieldMark
	fieldConntrackMark
	fieldState
	fieldStatus
	fieldDirection
	fieldSourceType
	fieldDestinationType
	fieldReversePath       // 1 if the route exists, otherwise 0
	fieldReversePathIndex  // the interface of the route, 0 if there is none
	fieldCgroup            // the number of the cgroup, for packets with a socket
	fieldTransparentSocket // 1 if the socket is transparent, otherwise 0; for packets with a socket
)

// isModeled reports whether the field is a packet field that the model supports.
func (f field) isModeled() bool { return f > fieldMapped }

// hasByteOrder reports whether every comparison of the field distinguishes numbers in host byte
// order from numbers in network byte order; see operand.networkOrder.
func (f field) hasByteOrder() bool {
	switch f {
	case fieldNumber, fieldMark, fieldConntrackMark, fieldUID, fieldGID:
		return true
	}
	return false
}

// loadedField returns an operand for a field with its length and its text.
func loadedField(f field, length int, text string) operand {
	return operand{field: f, length: length, text: text, effect: rules.Reads}
}

// metaField returns the operand that a meta expression with the key loads. optional reports that
// some packets lack the field. For an unsupported key, metaField returns an empty operand.
func metaField(key uint32) (op operand, optional bool) {
	switch key {
	case unix.NFT_META_IIFNAME:
		return loadedField(fieldIn, interfaceNameLength, "iifname"), false
	case unix.NFT_META_OIFNAME:
		return loadedField(fieldOut, interfaceNameLength, "oifname"), false
	case unix.NFT_META_IIF:
		return loadedField(fieldInIndex, 4, "iif"), false
	case unix.NFT_META_OIF:
		return loadedField(fieldOutIndex, 4, "oif"), false
	case unix.NFT_META_NFPROTO:
		return loadedField(fieldFamily, 1, "meta nfproto"), false
	case unix.NFT_META_L4PROTO:
		return loadedField(fieldProtocol, 1, "meta l4proto"), false
	case unix.NFT_META_SKUID:
		return loadedField(fieldUID, 4, "meta skuid"), true
	case unix.NFT_META_SKGID:
		return loadedField(fieldGID, 4, "meta skgid"), true
	case unix.NFT_META_MARK:
		return loadedField(fieldMark, 4, "meta mark"), false
	}
	return operand{}, false
}

// decodeMeta decodes a meta expression, which loads or sets a field.
func (d *ruleDecoder) decodeMeta(a attributes) error {
	key := a.Number(unix.NFTA_META_KEY)
	if a.Get(unix.NFTA_META_SREG) == nil {
		op, optional := metaField(key)
		op.data = d.indexData("meta", a)
		if optional {
			return d.storePending(a, unix.NFTA_META_DREG, op)
		}
		return d.store(a, unix.NFTA_META_DREG, op)
	}
	switch key {
	case unix.NFT_META_MARK:
		d.setMark(d.load(a, unix.NFTA_META_SREG))
	case unix.NFT_META_NFTRACE:
		d.writeState(rules.TraceState, a)
	case unix.NFT_META_PRIORITY:
		d.writeState(rules.PriorityState, a)
	case unix.NFT_META_SECMARK:
		d.writeState("meta secmark", a)
	default:
		return errUnsupported
	}
	return nil
}

// ctField returns the operand that a ct expression with the key loads, or an empty operand for an
// unsupported key. Packets without a connection lack all fields except the state.
func ctField(key uint32) operand {
	switch key {
	case unix.NFT_CT_MARK:
		return loadedField(fieldConntrackMark, 4, "ct mark")
	case unix.NFT_CT_STATE:
		return loadedField(fieldState, 4, "ct state")
	case unix.NFT_CT_STATUS:
		return loadedField(fieldStatus, 4, "ct status")
	case unix.NFT_CT_DIRECTION:
		return loadedField(fieldDirection, 1, "ct direction")
	}
	return operand{}
}

// decodeCT decodes a ct expression, which loads or sets a field of the packet's connection.
func (d *ruleDecoder) decodeCT(a attributes) error {
	key := a.Number(unix.NFTA_CT_KEY)
	if a.Get(unix.NFTA_CT_DIRECTION) != nil {
		return errUnsupported // a field of only one direction, such as its zone
	}
	if a.Get(unix.NFTA_CT_SREG) == nil {
		if key == unix.NFT_CT_STATE {
			return d.store(a, unix.NFTA_CT_DREG, ctField(key))
		}
		return d.storePending(a, unix.NFTA_CT_DREG, ctField(key))
	}
	op := d.load(a, unix.NFTA_CT_SREG)
	switch {
	case key == unix.NFT_CT_ZONE && len(op.constant) == 2:
		d.addAction(rules.SetZone{Zone: native.Uint16(op.constant)})
	case key == unix.NFT_CT_MARK:
		d.setConntrackMark(op)
	case key == unix.NFT_CT_EVENTMASK:
		d.addNoEffect("ct event", a)
	case key == unix.NFT_CT_LABELS:
		d.writeState("ct label", a)
	case key == unix.NFT_CT_SECMARK:
		d.writeState("ct secmark", a)
	default:
		return errUnsupported
	}
	return nil
}
