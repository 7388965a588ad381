package nft

import (
	"golang.org/x/sys/unix"
)

// register is the one that all our expressions use: each is consumed before the next is loaded.
const register = unix.NFT_REG_1

// expression writes one expression; attrs writes what belongs to it, in the order and with the defaults of the kernel's dumps: an
// [expectation] relies on it.
func (e *encoder) expression(name string, attrs func()) {
	n := e.nest(unix.NFTA_LIST_ELEM)
	e.text(unix.NFTA_EXPR_NAME, name)
	d := e.nest(unix.NFTA_EXPR_DATA)
	attrs()
	e.endNest(d)
	e.endNest(n)
}

func (e *encoder) meta(key uint32) {
	e.expression("meta", func() {
		e.number(unix.NFTA_META_KEY, key)
		e.number(unix.NFTA_META_DREG, register)
	})
}

func (e *encoder) setMeta(key uint32) {
	e.expression("meta", func() {
		e.number(unix.NFTA_META_KEY, key)
		e.number(unix.NFTA_META_SREG, register)
	})
}

func (e *encoder) ct(key uint32) {
	e.expression("ct", func() {
		e.number(unix.NFTA_CT_DREG, register)
		e.number(unix.NFTA_CT_KEY, key)
	})
}

func (e *encoder) setCT(key uint32) {
	e.expression("ct", func() {
		e.number(unix.NFTA_CT_SREG, register)
		e.number(unix.NFTA_CT_KEY, key)
	})
}

func (e *encoder) payload(p payload) {
	e.expression("payload", func() {
		e.number(unix.NFTA_PAYLOAD_DREG, register)
		e.number(unix.NFTA_PAYLOAD_BASE, p.base)
		e.number(unix.NFTA_PAYLOAD_OFFSET, p.offset)
		e.number(unix.NFTA_PAYLOAD_LEN, p.length)
	})
}

func (e *encoder) immediate(value []byte) {
	e.expression("immediate", func() {
		e.number(unix.NFTA_IMMEDIATE_DREG, register)
		e.data(unix.NFTA_IMMEDIATE_DATA, value)
	})
}

func (e *encoder) cmp(negated bool, value []byte) {
	op := uint32(unix.NFT_CMP_EQ)
	if negated {
		op = unix.NFT_CMP_NEQ
	}
	e.expression("cmp", func() {
		e.number(unix.NFTA_CMP_SREG, register)
		e.number(unix.NFTA_CMP_OP, op)
		e.data(unix.NFTA_CMP_DATA, value)
	})
}

func (e *encoder) interval(negated bool, first, last []byte) {
	op := uint32(unix.NFT_RANGE_EQ)
	if negated {
		op = unix.NFT_RANGE_NEQ
	}
	e.expression("range", func() {
		e.number(unix.NFTA_RANGE_SREG, register)
		e.number(unix.NFTA_RANGE_OP, op)
		e.data(unix.NFTA_RANGE_FROM_DATA, first)
		e.data(unix.NFTA_RANGE_TO_DATA, last)
	})
}

// bitwise keeps the bits of mask and then inverts those of xor.
func (e *encoder) bitwise(mask, xor []byte) {
	e.expression("bitwise", func() {
		e.number(unix.NFTA_BITWISE_SREG, register)
		e.number(unix.NFTA_BITWISE_DREG, register)
		e.number(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		e.number(nftaBitwiseOp, bitwiseMaskXor)
		e.data(unix.NFTA_BITWISE_MASK, mask)
		e.data(unix.NFTA_BITWISE_XOR, xor)
	})
}

// toNetworkOrder turns a 32-bit number round: the kernel compares intervals byte by byte.
func (e *encoder) toNetworkOrder() {
	e.expression("byteorder", func() {
		e.number(unix.NFTA_BYTEORDER_SREG, register)
		e.number(unix.NFTA_BYTEORDER_DREG, register)
		e.number(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON)
		e.number(unix.NFTA_BYTEORDER_LEN, 4)
		e.number(unix.NFTA_BYTEORDER_SIZE, 4)
	})
}

func (e *encoder) lookup(negated bool, set setRef) {
	e.expression("lookup", func() {
		e.text(unix.NFTA_LOOKUP_SET, set.name)
		e.number(unix.NFTA_LOOKUP_SREG, register)
		if set.id != 0 { // not for a set that exists already
			e.number(unix.NFTA_LOOKUP_SET_ID, set.id)
		}
		flags := uint32(0)
		if negated {
			flags = unix.NFT_LOOKUP_F_INV
		}
		e.number(unix.NFTA_LOOKUP_FLAGS, flags)
	})
}

func (e *encoder) verdict(code int32, chain string) {
	e.expression("immediate", func() {
		e.number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		d := e.nest(unix.NFTA_IMMEDIATE_DATA)
		v := e.nest(unix.NFTA_DATA_VERDICT)
		e.number(unix.NFTA_VERDICT_CODE, uint32(code))
		if chain != "" {
			e.text(unix.NFTA_VERDICT_CHAIN, chain)
		}
		e.endNest(v)
		e.endNest(d)
	})
}
