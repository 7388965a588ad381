package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
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
		d.writeMark(a, unix.NFTA_META_SREG, fieldMark, (*ruleDecoder).setMark)
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
		d.writeMark(a, unix.NFTA_CT_SREG, fieldConntrackMark, (*ruleDecoder).setConntrackMark)
	case key == unix.NFT_CT_EVENTMASK:
		d.addNoEffect("ct event", a, rules.NoEffect{Text: "unknown(ct event)"})
	case key == unix.NFT_CT_LABELS:
		d.writeState("ct label", a)
	case key == unix.NFT_CT_SECMARK:
		d.writeState("ct secmark", a)
	default:
		return errUnsupported
	}
	return nil
}

// decodeFIB decodes a lookup in the routing tables. The model supports the type of an address, and
// the interface or existence of the reverse path.
func (d *ruleDecoder) decodeFIB(a attributes) error {
	result, flags := a.Number(unix.NFTA_FIB_RESULT), a.Number(unix.NFTA_FIB_FLAGS)
	op := operand{}
	switch {
	case result == unix.NFT_FIB_RESULT_ADDRTYPE && flags == unix.NFTA_FIB_F_SADDR:
		op = loadedField(fieldSourceType, 4, "fib saddr type")
	case result == unix.NFT_FIB_RESULT_ADDRTYPE && flags == unix.NFTA_FIB_F_DADDR:
		op = loadedField(fieldDestinationType, 4, "fib daddr type")
	case result == unix.NFT_FIB_RESULT_OIF:
		const reverse = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_IIF
		switch flags &^ unix.NFTA_FIB_F_PRESENT {
		case reverse:
			op = loadedField(fieldReversePathIndex, 4, "fib saddr . iif oif")
		case reverse | unix.NFTA_FIB_F_MARK:
			op = loadedField(fieldReversePathIndex, 4, "fib saddr . mark . iif oif")
			op.constant = []byte("mark")
		default:
			return errUnsupported
		}
		if flags&unix.NFTA_FIB_F_PRESENT != 0 {
			op.field = fieldReversePath
		}
	}
	op.data = d.indexData("fib", a)
	return d.store(a, unix.NFTA_FIB_DREG, op)
}

// decodeSocket decodes the load of the transparent flag of the packet's socket, or of the number of
// its cgroup. The expression ends the rule for a packet without a socket.
func (d *ruleDecoder) decodeSocket(a attributes) error {
	switch expr.SocketKey(a.Number(expr.NFTA_SOCKET_KEY)) {
	case expr.SocketKeyTransparent:
	case expr.SocketKeyCgroupv2:
		level := a.Number(expr.NFTA_SOCKET_LEVEL)
		op := loadedField(fieldCgroup, 8, fmt.Sprintf("socket cgroupv2 level %d", level))
		op.constant = []byte{byte(level)}
		return d.storePending(a, expr.NFTA_SOCKET_DREG, op)
	default:
		return errUnsupported
	}
	return d.storePending(a, expr.NFTA_SOCKET_DREG,
		loadedField(fieldTransparentSocket, 1, "socket transparent"))
}

// cgroupKey returns the number of the cgroup if the keys are exactly one cgroup.
func cgroupKey(keys []keyInterval) (uint64, bool) {
	key, ok := singleKey(keys, 8)
	if !ok {
		return 0, false
	}
	return native.Uint64(key), true
}
