package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// write writes an expression of google/nftables. [expr.Marshal] writes the same attributes, but
// others in order and defaults than the kernel's dumps, with which an [expectation] compares the
// bytes, and it takes three times as long.
func (e *encoder) write(x expr.Any) error {
	switch x := x.(type) {
	case *expr.Meta:
		e.writeMeta(x)
	case *expr.Ct:
		e.writeCT(x)
	case *expr.Payload:
		e.writePayload(x)
	case *expr.Immediate:
		e.writeImmediate(x)
	case *expr.Cmp:
		e.writeCmp(x)
	case *expr.Range:
		e.writeRange(x)
	case *expr.Bitwise:
		e.writeBitwise(x)
	case *expr.Byteorder:
		e.writeByteOrder(x)
	case *expr.Lookup:
		e.writeLookup(x)
	case *expr.Verdict:
		e.writeVerdict(x)
	case *expr.Redir:
		e.writeRedirect(x)
	case *expr.TProxy:
		e.writeTProxy(x)
	case *expr.Counter:
		e.expression("counter", func() {})
	default:
		return fmt.Errorf("the expression %T has no encoding", x)
	}
	return nil
}

// expression writes one expression; attrs writes what belongs to it.
func (e *encoder) expression(name string, attrs func()) {
	n := e.nest(unix.NFTA_LIST_ELEM)
	e.text(unix.NFTA_EXPR_NAME, name)
	d := e.nest(unix.NFTA_EXPR_DATA)
	attrs()
	e.endNest(d)
	e.endNest(n)
}

func (e *encoder) writeMeta(x *expr.Meta) {
	e.expression("meta", func() {
		e.number(unix.NFTA_META_KEY, uint32(x.Key))
		if x.SourceRegister {
			e.number(unix.NFTA_META_SREG, x.Register)
		} else {
			e.number(unix.NFTA_META_DREG, x.Register)
		}
	})
}

func (e *encoder) writeCT(x *expr.Ct) {
	e.expression("ct", func() {
		if x.SourceRegister {
			e.number(unix.NFTA_CT_SREG, x.Register)
		} else {
			e.number(unix.NFTA_CT_DREG, x.Register)
		}
		e.number(unix.NFTA_CT_KEY, uint32(x.Key))
	})
}

func (e *encoder) writePayload(x *expr.Payload) {
	e.expression("payload", func() {
		e.number(unix.NFTA_PAYLOAD_DREG, x.DestRegister)
		e.number(unix.NFTA_PAYLOAD_BASE, uint32(x.Base))
		e.number(unix.NFTA_PAYLOAD_OFFSET, x.Offset)
		e.number(unix.NFTA_PAYLOAD_LEN, x.Len)
	})
}

func (e *encoder) writeImmediate(x *expr.Immediate) {
	e.expression("immediate", func() {
		e.number(unix.NFTA_IMMEDIATE_DREG, x.Register)
		e.data(unix.NFTA_IMMEDIATE_DATA, x.Data)
	})
}

func (e *encoder) writeCmp(x *expr.Cmp) {
	e.expression("cmp", func() {
		e.number(unix.NFTA_CMP_SREG, x.Register)
		e.number(unix.NFTA_CMP_OP, uint32(x.Op))
		e.data(unix.NFTA_CMP_DATA, x.Data)
	})
}

func (e *encoder) writeRange(x *expr.Range) {
	e.expression("range", func() {
		e.number(unix.NFTA_RANGE_SREG, x.Register)
		e.number(unix.NFTA_RANGE_OP, uint32(x.Op))
		e.data(unix.NFTA_RANGE_FROM_DATA, x.FromData)
		e.data(unix.NFTA_RANGE_TO_DATA, x.ToData)
	})
}

func (e *encoder) writeBitwise(x *expr.Bitwise) {
	e.expression("bitwise", func() {
		e.number(unix.NFTA_BITWISE_SREG, x.SourceRegister)
		e.number(unix.NFTA_BITWISE_DREG, x.DestRegister)
		e.number(unix.NFTA_BITWISE_LEN, x.Len)
		e.number(nftaBitwiseOp, bitwiseMaskXor)
		e.data(unix.NFTA_BITWISE_MASK, x.Mask)
		e.data(unix.NFTA_BITWISE_XOR, x.Xor)
	})
}

func (e *encoder) writeByteOrder(x *expr.Byteorder) {
	e.expression("byteorder", func() {
		e.number(unix.NFTA_BYTEORDER_SREG, x.SourceRegister)
		e.number(unix.NFTA_BYTEORDER_DREG, x.DestRegister)
		e.number(unix.NFTA_BYTEORDER_OP, uint32(x.Op))
		e.number(unix.NFTA_BYTEORDER_LEN, x.Len)
		e.number(unix.NFTA_BYTEORDER_SIZE, x.Size)
	})
}

func (e *encoder) writeLookup(x *expr.Lookup) {
	e.expression("lookup", func() {
		e.text(unix.NFTA_LOOKUP_SET, x.SetName)
		e.number(unix.NFTA_LOOKUP_SREG, x.SourceRegister)
		if x.SetID != 0 { // not for a set that exists already
			e.number(unix.NFTA_LOOKUP_SET_ID, x.SetID)
		}
		flags := uint32(0)
		if x.Invert {
			flags = unix.NFT_LOOKUP_F_INV
		}
		e.number(unix.NFTA_LOOKUP_FLAGS, flags)
	})
}

func (e *encoder) writeVerdict(x *expr.Verdict) {
	e.expression("immediate", func() {
		e.number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		d := e.nest(unix.NFTA_IMMEDIATE_DATA)
		v := e.nest(unix.NFTA_DATA_VERDICT)
		e.number(unix.NFTA_VERDICT_CODE, uint32(x.Kind))
		if x.Chain != "" {
			e.text(unix.NFTA_VERDICT_CHAIN, x.Chain)
		}
		e.endNest(v)
		e.endNest(d)
	})
}

func (e *encoder) writeRedirect(x *expr.Redir) {
	e.expression("redir", func() {
		e.number(unix.NFTA_REDIR_REG_PROTO_MIN, x.RegisterProtoMin)
		e.number(unix.NFTA_REDIR_REG_PROTO_MAX, x.RegisterProtoMax)
		e.number(unix.NFTA_REDIR_FLAGS, x.Flags)
	})
}

func (e *encoder) writeTProxy(x *expr.TProxy) {
	e.expression("tproxy", func() {
		e.number(nftaTProxyFamily, uint32(x.Family))
		e.number(nftaTProxyRegPort, x.RegPort)
	})
}
