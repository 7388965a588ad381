package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// marshal encodes an expression of google/nftables. [expr.Marshal] is not used for two reasons. It
// takes three times as long, and its attributes differ from the kernel's dumps in order and
// defaults. An [expectation] compares encoded bytes with dumps.
func (e *encoder) marshal(x expr.Any) error {
	switch x := x.(type) {
	case *expr.Meta:
		register := numberAttribute{unix.NFTA_META_DREG, x.Register}
		if x.SourceRegister {
			register.id = unix.NFTA_META_SREG
		}
		e.writeAttributes("meta", []numberAttribute{{unix.NFTA_META_KEY, uint32(x.Key)}, register})
	case *expr.Ct:
		register := numberAttribute{unix.NFTA_CT_DREG, x.Register}
		if x.SourceRegister {
			register.id = unix.NFTA_CT_SREG
		}
		e.writeExpression("ct", func() {
			e.addNumber(register.id, register.value)
			e.addNumber(unix.NFTA_CT_KEY, uint32(x.Key))
			if x.OptDirection {
				e.addAttr(unix.NFTA_CT_DIRECTION, []byte{byte(x.Direction)})
			}
		})
	case *expr.Payload:
		if x.OperationType == expr.PayloadWrite {
			e.writeAttributes("payload", []numberAttribute{
				{unix.NFTA_PAYLOAD_SREG, x.SourceRegister},
				{unix.NFTA_PAYLOAD_BASE, uint32(x.Base)},
				{unix.NFTA_PAYLOAD_OFFSET, x.Offset},
				{unix.NFTA_PAYLOAD_LEN, x.Len},
				{unix.NFTA_PAYLOAD_CSUM_TYPE, uint32(x.CsumType)},
				{unix.NFTA_PAYLOAD_CSUM_OFFSET, x.CsumOffset},
				{unix.NFTA_PAYLOAD_CSUM_FLAGS, x.CsumFlags},
			})
			return nil
		}
		e.writeAttributes("payload", []numberAttribute{
			{unix.NFTA_PAYLOAD_DREG, x.DestRegister},
			{unix.NFTA_PAYLOAD_BASE, uint32(x.Base)},
			{unix.NFTA_PAYLOAD_OFFSET, x.Offset},
			{unix.NFTA_PAYLOAD_LEN, x.Len},
		})
	case *expr.Exthdr: // loads an option or, with a source register, writes it
		e.writeExpression("exthdr", func() {
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
		})
	case *expr.Immediate:
		e.writeAttributes("immediate", []numberAttribute{{unix.NFTA_IMMEDIATE_DREG, x.Register}},
			dataAttribute{unix.NFTA_IMMEDIATE_DATA, x.Data})
	case *expr.Cmp:
		e.writeAttributes("cmp", []numberAttribute{
			{unix.NFTA_CMP_SREG, x.Register},
			{unix.NFTA_CMP_OP, uint32(x.Op)},
		}, dataAttribute{unix.NFTA_CMP_DATA, x.Data})
	case *expr.Range:
		e.writeAttributes("range", []numberAttribute{
			{unix.NFTA_RANGE_SREG, x.Register},
			{unix.NFTA_RANGE_OP, uint32(x.Op)},
		},
			dataAttribute{unix.NFTA_RANGE_FROM_DATA, x.FromData},
			dataAttribute{unix.NFTA_RANGE_TO_DATA, x.ToData})
	case *expr.Bitwise:
		e.writeAttributes("bitwise", []numberAttribute{
			{unix.NFTA_BITWISE_SREG, x.SourceRegister},
			{unix.NFTA_BITWISE_DREG, x.DestRegister},
			{unix.NFTA_BITWISE_LEN, x.Len},
			{nftaBitwiseOp, bitwiseMaskXor},
		},
			dataAttribute{unix.NFTA_BITWISE_MASK, x.Mask},
			dataAttribute{unix.NFTA_BITWISE_XOR, x.Xor})
	case *expr.Byteorder:
		e.writeAttributes("byteorder", []numberAttribute{
			{unix.NFTA_BYTEORDER_SREG, x.SourceRegister},
			{unix.NFTA_BYTEORDER_DREG, x.DestRegister},
			{unix.NFTA_BYTEORDER_OP, uint32(x.Op)},
			{unix.NFTA_BYTEORDER_LEN, x.Len},
			{unix.NFTA_BYTEORDER_SIZE, x.Size},
		})
	case *expr.Lookup:
		e.writeLookup(x)
	case *expr.Verdict:
		e.writeVerdict(x)
	case *expr.Counter:
		e.writeCounter(x)
	default:
		if !e.writePacketAction(x) && !e.writeLoad(x) && !e.writeStateful(x) {
			return fmt.Errorf("the expression %T has no encoding", x)
		}
	}
	return nil
}

// writeShift encodes a shift, which is a bitwise expression.
func (e *encoder) writeShift(x Shift) {
	op := uint32(bitwiseRightShift)
	if x.Left {
		op = bitwiseLeftShift
	}
	e.writeAttributes("bitwise", []numberAttribute{
		{unix.NFTA_BITWISE_SREG, x.Register},
		{unix.NFTA_BITWISE_DREG, x.Register},
		{unix.NFTA_BITWISE_LEN, x.Length},
		{nftaBitwiseOp, op},
	}, dataAttribute{nftaBitwiseData, native.AppendUint32(nil, x.Bits)})
}

// A numberAttribute is an attribute of an expression with a 32-bit number.
type numberAttribute struct {
	id    uint16
	value uint32
}

// A dataAttribute is an attribute of an expression with a constant (NFTA_DATA_VALUE), such as the
// operand of cmp or the mask of bitwise.
type dataAttribute struct {
	id    uint16
	value []byte
}

// writeAttributes encodes an expression that consists of numeric attributes followed by data
// attributes.
func (e *encoder) writeAttributes(name string, numbers []numberAttribute, data ...dataAttribute) {
	e.writeExpression(name, func() {
		for _, a := range numbers {
			e.addNumber(a.id, a.value)
		}
		for _, a := range data {
			e.addData(a.id, a.value)
		}
	})
}

// writeExpression encodes an expression. attrs encodes its attributes.
func (e *encoder) writeExpression(name string, attrs func()) {
	n := e.beginNest(unix.NFTA_LIST_ELEM)
	e.addText(unix.NFTA_EXPR_NAME, name)
	d := e.beginNest(unix.NFTA_EXPR_DATA)
	attrs()
	e.endNest(d)
	e.endNest(n)
}

// writeCounter encodes a counter. Without asDumped, values that are both 0 are omitted.
func (e *encoder) writeCounter(x *expr.Counter) {
	e.writeExpression("counter", func() {
		if e.asDumped || *x != (expr.Counter{}) {
			e.addNumber64(unix.NFTA_COUNTER_BYTES, x.Bytes)
			e.addNumber64(unix.NFTA_COUNTER_PACKETS, x.Packets)
		}
	})
}

func (e *encoder) writeLookup(x *expr.Lookup) {
	e.writeExpression("lookup", func() {
		e.addText(unix.NFTA_LOOKUP_SET, x.SetName)
		e.addNumber(unix.NFTA_LOOKUP_SREG, x.SourceRegister)
		if x.IsDestRegSet {
			e.addNumber(unix.NFTA_LOOKUP_DREG, x.DestRegister)
		}
		if x.SetID != 0 { // 0 for a set that already exists
			e.addNumber(unix.NFTA_LOOKUP_SET_ID, x.SetID)
		}
		e.addNumber(unix.NFTA_LOOKUP_FLAGS, flagIf(x.Invert, unix.NFT_LOOKUP_F_INV))
	})
}

// writeVerdict encodes a verdict, which is an immediate expression for the verdict register.
func (e *encoder) writeVerdict(x *expr.Verdict) {
	e.writeExpression("immediate", func() {
		e.addNumber(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		d := e.beginNest(unix.NFTA_IMMEDIATE_DATA)
		e.writeVerdictData(x)
		e.endNest(d)
	})
}

// writeVerdictData encodes the attribute NFTA_DATA_VERDICT.
func (e *encoder) writeVerdictData(x *expr.Verdict) {
	v := e.beginNest(unix.NFTA_DATA_VERDICT)
	e.addNumber(unix.NFTA_VERDICT_CODE, uint32(x.Kind))
	if x.Chain != "" {
		e.addText(unix.NFTA_VERDICT_CHAIN, x.Chain)
	}
	e.endNest(v)
}
