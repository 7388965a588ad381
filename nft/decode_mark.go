package nft

import "github.com/sluice-mesh/sluice/rules"

// hasConnection is fulfilled by packets of a connection: a load of the connection's mark ends the
// rule for others.
var hasConnection = rules.MatchMark{Conntrack: true}

// maskOf returns the bits of a mark that an operand keeps, and the bits that it then inverts.
func maskOf(op operand) (mask, xor uint32, ok bool) {
	if op.mask == nil {
		return ^uint32(0), 0, op.length == 4 && !op.network
	}
	mask, okMask := hostNumber(op.mask)
	xor, okXor := hostNumber(op.xor)
	return mask, xor, okMask && okXor && !op.network
}

// setMark gives the packet an operand as its mark.
func (d *ruleDecoder) setMark(op operand) {
	mask, xor, ok := maskOf(op)
	value, isNumber := hostNumber(op.constant)
	switch {
	case op.field == fieldConstant && isNumber:
		d.act(rules.SetMark{Value: value, Mask: ^uint32(0)})
	case op.field == fieldMark && ok:
		d.act(rules.SetMark{Value: xor, Mask: ^mask})
	case op.field == fieldConntrackMark && ok && mask == ^uint32(0) && xor == 0:
		d.use(op)
		d.act(rules.RestoreMark{})
	case op.field == fieldConntrackMark && ok:
		d.use(op)
		d.add(hasConnection)
		d.act(rules.MixMark{ConntrackMark: mask, Xor: xor})
	default:
		d.writeUnknown("meta mark set ", op, rules.WritesMark)
	}
}

// setConntrackMark gives the packet's connection an operand as its mark; without a connection
// nothing happens.
func (d *ruleDecoder) setConntrackMark(op operand) {
	mask, xor, ok := maskOf(op)
	value, isNumber := hostNumber(op.constant)
	switch {
	case op.field == fieldConstant && isNumber:
		d.act(rules.MixMark{Conntrack: true, Xor: value})
	case op.field == fieldMark && ok && mask == ^uint32(0) && xor == 0:
		d.act(rules.SaveMark{})
	case op.field == fieldMark && ok:
		d.act(rules.MixMark{Conntrack: true, Mark: mask, Xor: xor})
	case op.field == fieldConntrackMark && ok:
		d.use(op)
		d.add(hasConnection)
		d.act(rules.MixMark{Conntrack: true, ConntrackMark: mask, Xor: xor})
	default:
		d.writeUnknown("ct mark set ", op, rules.WritesConntrackMark)
	}
}

// writeUnknown adds the action that writes an operand for which the model has no word.
func (d *ruleDecoder) writeUnknown(text string, op operand, effect rules.Effect) {
	data := op.data
	switch {
	case op.noData || op.field == fieldNone:
		data = rules.NoData
	case op.effect == rules.Draws:
		data = d.identity()
	}
	d.use(op)
	d.unknown(text+op.String(), effect, data)
}
