package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// marshal encodes an expression of google/nftables. [expr.Marshal] is not used for two reasons. It
// takes three times as long, and its attributes differ from the kernel's dumps in order and
// defaults. An [expectation] compares encoded bytes with dumps.
func (e *encoder) marshal(x expr.Any) error {
	start := len(e.buf)
	switch x := x.(type) {
	case *expr.Meta:
		e.beginExpression("meta")
		e.addNumber(unix.NFTA_META_KEY, uint32(x.Key))
		if x.SourceRegister {
			e.addNumber(unix.NFTA_META_SREG, x.Register)
		} else {
			e.addNumber(unix.NFTA_META_DREG, x.Register)
		}
	case *expr.Ct:
		e.beginExpression("ct")
		if x.SourceRegister {
			e.addNumber(unix.NFTA_CT_SREG, x.Register)
		} else {
			e.addNumber(unix.NFTA_CT_DREG, x.Register)
		}
		e.addNumber(unix.NFTA_CT_KEY, uint32(x.Key))
		if x.OptDirection {
			e.addAttr(unix.NFTA_CT_DIRECTION, []byte{byte(x.Direction)})
		}
	case *expr.Payload:
		isWrite := x.OperationType == expr.PayloadWrite
		e.beginExpression("payload")
		if isWrite {
			e.addNumber(unix.NFTA_PAYLOAD_SREG, x.SourceRegister)
		} else {
			e.addNumber(unix.NFTA_PAYLOAD_DREG, x.DestRegister)
		}
		e.addNumber(unix.NFTA_PAYLOAD_BASE, uint32(x.Base))
		e.addNumber(unix.NFTA_PAYLOAD_OFFSET, x.Offset)
		e.addNumber(unix.NFTA_PAYLOAD_LEN, x.Len)
		if isWrite {
			e.addNumber(unix.NFTA_PAYLOAD_CSUM_TYPE, uint32(x.CsumType))
			e.addNumber(unix.NFTA_PAYLOAD_CSUM_OFFSET, x.CsumOffset)
			e.addNumber(unix.NFTA_PAYLOAD_CSUM_FLAGS, x.CsumFlags)
		}
	case *expr.Exthdr: // loads an option or, with a source register, writes it
		e.beginExpression("exthdr")
		if x.SourceRegister == 0 {
			e.addNumber(unix.NFTA_EXTHDR_DREG, x.DestRegister)
		} else {
			e.addNumber(unix.NFTA_EXTHDR_SREG, x.SourceRegister)
		}
		e.addAttr(unix.NFTA_EXTHDR_TYPE, []byte{x.Type})
		e.addNumber(unix.NFTA_EXTHDR_OFFSET, x.Offset)
		e.addNumber(unix.NFTA_EXTHDR_LEN, x.Len)
		e.addNumber(unix.NFTA_EXTHDR_FLAGS, x.Flags)
		e.addNumber(unix.NFTA_EXTHDR_OP, uint32(x.Op))
	case *expr.Immediate:
		e.beginExpression("immediate")
		e.addNumber(unix.NFTA_IMMEDIATE_DREG, x.Register)
		e.addData(unix.NFTA_IMMEDIATE_DATA, x.Data)
	case *expr.Verdict: // an immediate expression for the verdict register
		e.beginExpression("immediate")
		e.addNumber(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		e.addVerdict(unix.NFTA_IMMEDIATE_DATA, x)
	case *expr.Cmp:
		e.beginExpression("cmp")
		e.addNumber(unix.NFTA_CMP_SREG, x.Register)
		e.addNumber(unix.NFTA_CMP_OP, uint32(x.Op))
		e.addData(unix.NFTA_CMP_DATA, x.Data)
	case *expr.Range:
		e.beginExpression("range")
		e.addNumber(unix.NFTA_RANGE_SREG, x.Register)
		e.addNumber(unix.NFTA_RANGE_OP, uint32(x.Op))
		e.addData(unix.NFTA_RANGE_FROM_DATA, x.FromData)
		e.addData(unix.NFTA_RANGE_TO_DATA, x.ToData)
	case *expr.Bitwise:
		e.beginBitwise(x.SourceRegister, x.DestRegister, x.Len, bitwiseMaskXor)
		e.addData(unix.NFTA_BITWISE_MASK, x.Mask)
		e.addData(unix.NFTA_BITWISE_XOR, x.Xor)
	case *expr.Byteorder:
		e.beginExpression("byteorder")
		e.addNumber(unix.NFTA_BYTEORDER_SREG, x.SourceRegister)
		e.addNumber(unix.NFTA_BYTEORDER_DREG, x.DestRegister)
		e.addNumber(unix.NFTA_BYTEORDER_OP, uint32(x.Op))
		e.addNumber(unix.NFTA_BYTEORDER_LEN, x.Len)
		e.addNumber(unix.NFTA_BYTEORDER_SIZE, x.Size)
	case *expr.Lookup:
		e.beginExpression("lookup")
		e.addText(unix.NFTA_LOOKUP_SET, x.SetName)
		e.addNumber(unix.NFTA_LOOKUP_SREG, x.SourceRegister)
		if x.IsDestRegSet {
			e.addNumber(unix.NFTA_LOOKUP_DREG, x.DestRegister)
		}
		e.addNonZero(unix.NFTA_LOOKUP_SET_ID, x.SetID) // 0 for a set that already exists
		e.addNumber(unix.NFTA_LOOKUP_FLAGS, flagIf(x.Invert, unix.NFT_LOOKUP_F_INV))
	case *expr.Counter:
		e.beginExpression("counter")
		if e.asDumped || *x != (expr.Counter{}) {
			e.addNumber64(unix.NFTA_COUNTER_BYTES, x.Bytes)
			e.addNumber64(unix.NFTA_COUNTER_PACKETS, x.Packets)
		}
	default:
		if known, err := e.marshalOther(x); err != nil {
			return err
		} else if !known {
			return fmt.Errorf("the expression %T has no encoding", x)
		}
	}
	e.endExpression(start)
	return nil
}

// writeShift encodes a shift, which is a bitwise expression.
func (e *encoder) writeShift(x Shift) {
	start, op := len(e.buf), uint32(bitwiseRightShift)
	if x.Left {
		op = bitwiseLeftShift
	}
	e.beginBitwise(x.Register, x.Register, x.Length, op)
	e.addData(nftaBitwiseData, native.AppendUint32(nil, x.Bits))
	e.endExpression(start)
}

// beginBitwise starts a bitwise expression, and adds the attributes that all operations have.
func (e *encoder) beginBitwise(source, destination, length, op uint32) {
	e.beginExpression("bitwise")
	e.addNumber(unix.NFTA_BITWISE_SREG, source)
	e.addNumber(unix.NFTA_BITWISE_DREG, destination)
	e.addNumber(unix.NFTA_BITWISE_LEN, length)
	e.addNumber(nftaBitwiseOp, op)
}

// writeExpression encodes an expression. attrs encodes its attributes.
func (e *encoder) writeExpression(name string, attrs func()) {
	start := len(e.buf)
	e.beginExpression(name)
	attrs()
	e.endExpression(start)
}

// beginExpression starts an expression. The attributes that follow belong to it.
func (e *encoder) beginExpression(name string) {
	e.beginNest(unix.NFTA_LIST_ELEM)
	e.addText(unix.NFTA_EXPR_NAME, name)
	e.beginNest(unix.NFTA_EXPR_DATA)
}

// endExpression completes the expression that begins at the position.
func (e *encoder) endExpression(start int) {
	name := start + unix.NLA_HDRLEN
	e.endNest(name + nlmsg.Align(int(native.Uint16(e.buf[name:]))))
	e.endNest(start)
}

// addVerdict appends a nested attribute with a verdict.
func (e *encoder) addVerdict(attrType uint16, x *expr.Verdict) {
	d := e.beginNest(attrType)
	v := e.beginNest(unix.NFTA_DATA_VERDICT)
	e.addNumber(unix.NFTA_VERDICT_CODE, uint32(x.Kind))
	if x.Chain != "" {
		e.addText(unix.NFTA_VERDICT_CHAIN, x.Chain)
	}
	e.endNest(v)
	e.endNest(d)
}

// addNonZero appends an attribute with a number, unless the number is 0.
func (e *encoder) addNonZero(attrType uint16, n uint32) {
	if n != 0 {
		e.addNumber(attrType, n)
	}
}

// flagIf returns the flag if isSet, and 0 otherwise.
func flagIf(isSet bool, flag uint32) uint32 {
	if isSet {
		return flag
	}
	return 0
}
