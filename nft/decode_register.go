package nft

import (
	"golang.org/x/sys/unix"
)

// registerCount is how many registers of 4 bytes there are; those of 16 bytes are four of them each (linux/netfilter/nf_tables.h).
const registerCount = unix.NFT_REG32_15 - unix.NFT_REG32_00 + 1

// registerIndex is the index of the first of the 4-byte registers that an attribute names, registerCount if it names none.
func registerIndex(a attributes, attr uint16) int {
	switch r := a.number(attr); {
	case unix.NFT_REG_1 <= r && r <= unix.NFT_REG_4:
		return int(r-unix.NFT_REG_1) * 4
	case unix.NFT_REG32_00 <= r && r <= unix.NFT_REG32_15:
		return int(r - unix.NFT_REG32_00)
	}
	return registerCount
}

// load is what a register that an attribute names holds.
func (d *ruleDecoder) load(a attributes, attr uint16) operand {
	if r := registerIndex(a, attr); r < registerCount {
		return d.registers[r]
	}
	return operand{}
}

// store fills the registers from the one that an attribute names, and so takes what others held that reach into them.
func (d *ruleDecoder) store(a attributes, attr uint16, op operand) error {
	r := registerIndex(a, attr)
	if r >= registerCount || op.field == fieldNone {
		return errUnsupported
	}
	for i := range d.registers {
		if other := d.registers[i].length; other > 0 && i < r+words(op.length) && r < i+words(other) {
			d.registers[i] = operand{}
		}
	}
	d.registers[r] = op
	return nil
}

// words is how many 4-byte registers so many bytes take.
func words(length int) int { return (length + 3) / 4 }

// An operand is what a register holds: a field of the packet, perhaps masked, or a constant.
type operand struct {
	field    field
	length   int    // in bytes
	constant []byte // of fieldConstant
	mask     []byte // nil for all bits
	xor      []byte
	network  bool // a number of the machine, turned into network order
}

// isAddr tells whether an operand is a whole address.
func (d *ruleDecoder) isAddr(o operand) bool {
	ofAddr := o.field == fieldSource || o.field == fieldDestination
	return ofAddr && o.mask == nil && o.length == int(addrField(d.family, sideOf(o.field)).length)
}

// isMark tells whether it is something that rules change while they look at a packet.
func (o operand) isMark() bool { return o.field == fieldMark || o.field == fieldConntrackMark }

// field is something of a packet that expressions load.
type field uint8

const (
	fieldNone field = iota
	fieldConstant
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
	fieldTCPFlags
	fieldUID
	fieldGID
	fieldMark
	fieldConntrackMark
	fieldState
)

// metaField is what a meta expression with the key loads.
func metaField(key uint32) operand {
	switch key {
	case unix.NFT_META_IIFNAME:
		return operand{field: fieldIn, length: interfaceNameLength}
	case unix.NFT_META_OIFNAME:
		return operand{field: fieldOut, length: interfaceNameLength}
	case unix.NFT_META_IIF:
		return operand{field: fieldInIndex, length: 4}
	case unix.NFT_META_OIF:
		return operand{field: fieldOutIndex, length: 4}
	case unix.NFT_META_NFPROTO:
		return operand{field: fieldFamily, length: 1}
	case unix.NFT_META_L4PROTO:
		return operand{field: fieldProtocol, length: 1}
	case unix.NFT_META_SKUID:
		return operand{field: fieldUID, length: 4}
	case unix.NFT_META_SKGID:
		return operand{field: fieldGID, length: 4}
	case unix.NFT_META_MARK:
		return operand{field: fieldMark, length: 4}
	}
	return operand{}
}

// ctField is what a ct expression with the key loads.
func ctField(key uint32) operand {
	switch key {
	case unix.NFT_CT_MARK:
		return operand{field: fieldConntrackMark, length: 4}
	case unix.NFT_CT_STATE:
		return operand{field: fieldState, length: 4}
	}
	return operand{}
}

func (d *ruleDecoder) bitwise(a attributes) error {
	op := d.load(a, unix.NFTA_BITWISE_SREG)
	if a.number(nftaBitwiseOp) != 0 || op.mask != nil || op.network || op.field == fieldConstant {
		return errUnsupported
	}
	op.mask, op.xor = constant(a, unix.NFTA_BITWISE_MASK), constant(a, unix.NFTA_BITWISE_XOR)
	if len(op.mask) != op.length || len(op.xor) != op.length {
		return errUnsupported
	}
	return d.store(a, unix.NFTA_BITWISE_DREG, op)
}

func (d *ruleDecoder) byteorder(a attributes) error {
	op := d.load(a, unix.NFTA_BYTEORDER_SREG)
	if a.number(unix.NFTA_BYTEORDER_OP) != unix.NFT_BYTEORDER_HTON || a.number(unix.NFTA_BYTEORDER_LEN) != 4 ||
		a.number(unix.NFTA_BYTEORDER_SIZE) != 4 || op.mask != nil || op.length != 4 {
		return errUnsupported
	}
	op.network = true
	return d.store(a, unix.NFTA_BYTEORDER_DREG, op)
}
