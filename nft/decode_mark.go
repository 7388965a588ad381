package nft

import (
	"slices"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// hasConnection matches packets that belong to a connection. For other packets, the kernel ends the
// rule where it loads the connection's mark, whereas [rules.MixMark] has no effect and the rule
// continues. Therefore hasConnection is added if an expression follows the MixMark.
var hasConnection = rules.MatchMark{Conntrack: true}

// addMixMark adds an action that sets a mark to a value that depends on the connection's mark.
func (d *ruleDecoder) addMixMark(op operand, action rules.MixMark) {
	d.clearPending(op)
	d.addAction(action)
	d.needsConnection = true
}

// requireConnection adds the condition that the packet has a connection, if the last action ends
// the rule for other packets.
func (d *ruleDecoder) requireConnection() {
	if d.needsConnection {
		d.needsConnection = false
		d.rule.Actions = append(d.rule.Actions, rules.Require{Match: hasConnection})
	}
}

// maskAndXor returns the mask and the xor value of an operand that is computed from a mark. ok is
// false if the operand is not a number of 32 bits in host byte order.
func maskAndXor(op operand) (mask, xor uint32, ok bool) {
	if op.mask == nil {
		return ^uint32(0), 0, op.length == 4 && !op.networkOrder
	}
	mask, okMask := nlmsg.HostNumber(op.mask)
	xor, okXor := nlmsg.HostNumber(op.xor)
	return mask, xor, okMask && okXor && !op.networkOrder
}

// writeMark adds the action that sets a mark to the operand in the register of an attribute. The
// mark is fieldMark or fieldConntrackMark, and set is setMark or setConntrackMark. writeMark splits
// the rule if the operand is the value of a map. Only one of the branches applies to a packet,
// because the write does not change the looked-up fields.
func (d *ruleDecoder) writeMark(
	a attributes, attr uint16, mark field, set func(*ruleDecoder, operand),
) {
	op, r := d.load(a, attr), registerIndex(a, attr)
	changes := func(source operand) bool {
		isOtherMark := mark == fieldMark && source.field == fieldConntrackMark ||
			mark == fieldConntrackMark && source.field == fieldMark
		return source.isMutable() && !isOtherMark
	}
	if op.field == fieldMapped && len(op.mapped.data) > 0 && !isNumber(op.sources) &&
		!slices.ContainsFunc(op.sources, changes) {
		err := d.decodeMapBranches(r, func(branch *ruleDecoder) error {
			set(branch, *branch.registers[r])
			return nil
		})
		if err == nil {
			d.withoutSplit = func() { set(d, op) }
			return
		}
	}
	set(d, op)
}

// setMark adds the action that sets the packet's mark to an operand.
func (d *ruleDecoder) setMark(op operand) {
	mask, xor, ok := maskAndXor(op)
	value, isNumber := nlmsg.HostNumber(op.constant)
	switch {
	case op.field == fieldConstant && isNumber:
		d.addAction(rules.SetMark{Value: value, Mask: ^uint32(0)})
	case op.field == fieldMark && ok:
		d.addAction(rules.SetMark{Value: xor, Mask: ^mask})
	case op.field == fieldConntrackMark && ok && mask == ^uint32(0) && xor == 0:
		d.clearPending(op)
		d.addAction(rules.RestoreMark{})
	case op.field == fieldConntrackMark && ok && mask == 0:
		// The value is constant, but the rule ends for packets without a connection.
		d.clearPending(op)
		d.addCondition(hasConnection)
		d.addAction(rules.SetMark{Value: xor, Mask: ^uint32(0)})
	case op.field == fieldConntrackMark && ok:
		d.addMixMark(op, rules.MixMark{ConntrackMark: mask, Xor: xor})
	default:
		d.addUnknownWrite("meta mark set ", op, rules.WritesMark)
	}
}

// setConntrackMark adds the action that sets the connection's mark to an operand. For packets
// without a connection, the action has no effect.
func (d *ruleDecoder) setConntrackMark(op operand) {
	mask, xor, ok := maskAndXor(op)
	value, isNumber := nlmsg.HostNumber(op.constant)
	switch {
	case op.field == fieldConstant && isNumber:
		d.addAction(rules.MixMark{Conntrack: true, Xor: value})
	case op.field == fieldMark && ok && mask == ^uint32(0) && xor == 0:
		d.addAction(rules.SaveMark{})
	case op.field == fieldMark && ok:
		d.addAction(rules.MixMark{Conntrack: true, Mark: mask, Xor: xor})
	case op.field == fieldConntrackMark && ok:
		d.addMixMark(op, rules.MixMark{Conntrack: true, ConntrackMark: mask, Xor: xor})
	default:
		d.addUnknownWrite("ct mark set ", op, rules.WritesConntrackMark)
	}
}

// addUnknownWrite adds an unknown action that writes an operand.
func (d *ruleDecoder) addUnknownWrite(text string, op operand, effect rules.Effect) {
	data := op.data
	switch {
	case op.noData || op.field == fieldNone:
		data = rules.NoData
	case op.effect == rules.ReadsVarying:
		data = d.identity()
	}
	d.clearPending(op)
	d.addUnknown(text+op.String(), effect, data)
}
