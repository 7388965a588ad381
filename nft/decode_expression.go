package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// An expressionKind describes a type of nf_tables expression.
type expressionKind struct {
	// decode decodes an expression, or returns an error if the model cannot represent it. It is nil
	// if the model cannot represent any expression of the type.
	decode func(*ruleDecoder, attributes) error
	// The following fields are used if decode is nil or returns an error.
	//
	// destination is the attribute of the register that the expression loads, 0 if it loads none.
	// sources contains the attributes of the registers that the loaded value depends on. written is
	// the attribute of the register that the expression writes to the packet, if it writes instead
	// of loading.
	destination uint16
	sources     [2]uint16
	written     uint16
	// effect is the effect of expressions that load no register, in addition to ending the rule.
	effect rules.Effect
}

// kindOfExpression returns the kind of the expression with the name. It knows all expressions that
// Linux 6.18 registers with nft_register_expr and in nft_basic_types
// (net/netfilter/nf_tables_core.c). An expression with another name may have any effect.
func kindOfExpression(name string) (kind expressionKind, known bool) {
	switch name {
	// Loads, and expressions that change a loaded value.
	case "immediate":
		return expressionKind{decode: (*ruleDecoder).decodeImmediate}, true
	case "meta":
		return expressionKind{
			decode: (*ruleDecoder).decodeMeta, destination: unix.NFTA_META_DREG,
			written: unix.NFTA_META_SREG,
		}, true
	case "ct":
		return expressionKind{
			decode: (*ruleDecoder).decodeCT, destination: unix.NFTA_CT_DREG, written: unix.NFTA_CT_SREG,
		}, true
	case "payload":
		return expressionKind{
			decode: (*ruleDecoder).decodePayload, destination: unix.NFTA_PAYLOAD_DREG,
			written: unix.NFTA_PAYLOAD_SREG,
		}, true
	case "fib":
		return expressionKind{decode: (*ruleDecoder).decodeFIB, destination: unix.NFTA_FIB_DREG}, true
	case "socket":
		return expressionKind{decode: (*ruleDecoder).decodeSocket, destination: expr.NFTA_SOCKET_DREG}, true
	case "numgen":
		return expressionKind{decode: (*ruleDecoder).decodeNumgen, destination: unix.NFTA_NG_DREG}, true
	case "hash":
		return expressionKind{
			decode: (*ruleDecoder).decodeHash, destination: unix.NFTA_HASH_DREG,
			sources: [2]uint16{unix.NFTA_HASH_SREG},
		}, true
	case "bitwise":
		return expressionKind{
			decode: (*ruleDecoder).decodeBitwise, destination: unix.NFTA_BITWISE_DREG,
			sources: [2]uint16{unix.NFTA_BITWISE_SREG, nftaBitwiseSreg2},
		}, true
	case "byteorder":
		return expressionKind{
			decode: (*ruleDecoder).decodeByteorder, destination: unix.NFTA_BYTEORDER_DREG,
			sources: [2]uint16{unix.NFTA_BYTEORDER_SREG},
		}, true
	case "exthdr": // also sets and removes TCP options
		return expressionKind{
			decode:      (*ruleDecoder).decodeHeaderOption,
			destination: unix.NFTA_EXTHDR_DREG, written: unix.NFTA_EXTHDR_SREG,
		}, true
	case "rt":
		return expressionKind{destination: unix.NFTA_RT_DREG}, true
	case "osf":
		return expressionKind{destination: nftaOsfDreg}, true
	case "tunnel":
		return expressionKind{destination: nftaTunnelDreg}, true
	case "xfrm":
		return expressionKind{destination: nftaXfrmDreg}, true
	case "inner": // contains another expression that loads a register
		return expressionKind{decode: (*ruleDecoder).decodeInner}, true

	// Conditions.
	case "cmp":
		return expressionKind{decode: (*ruleDecoder).decodeCompare, effect: rules.Reads}, true
	case "range":
		return expressionKind{decode: (*ruleDecoder).decodeCompareRange, effect: rules.Reads}, true
	case "lookup": // also loads, and with a verdict map ends the rule
		return expressionKind{decode: (*ruleDecoder).decodeLookup}, true
	case "limit":
		return expressionKind{decode: (*ruleDecoder).decodeLimitRate, effect: rules.ReadsVarying}, true
	case "quota":
		return expressionKind{decode: (*ruleDecoder).decodeQuota, effect: rules.ReadsHistory}, true
	case "connlimit":
		return expressionKind{decode: (*ruleDecoder).decodeConnlimit}, true
	case "dynset": // changes a set; ends the rule if the set is full or a limit is exceeded
		return expressionKind{decode: (*ruleDecoder).decodeDynset, effect: rules.Reads}, true
	case "match":
		return expressionKind{decode: (*ruleDecoder).decodeExtensionMatch}, true

	// Actions, and expressions without an effect.
	case "counter":
		return expressionKind{decode: (*ruleDecoder).decodeCounter}, true
	case "log", "last":
		decode := func(d *ruleDecoder, a attributes) error {
			d.addNoEffect(name, a)
			return nil
		}
		return expressionKind{decode: decode}, true
	case "objref":
		return expressionKind{decode: (*ruleDecoder).decodeObjref}, true
	case "notrack":
		return expressionKind{decode: (*ruleDecoder).decodeNotrack}, true
	case "nat":
		return expressionKind{decode: (*ruleDecoder).decodeNAT}, true
	case "redir":
		return expressionKind{decode: (*ruleDecoder).decodeRedirect}, true
	case "tproxy":
		return expressionKind{decode: (*ruleDecoder).decodeTProxy}, true
	case "reject":
		return expressionKind{decode: (*ruleDecoder).decodeReject}, true
	case "target":
		return expressionKind{decode: (*ruleDecoder).decodeExtensionTarget}, true
	case "masq":
		return expressionKind{
			decode: (*ruleDecoder).decodeMasquerade, effect: rules.TranslatesSource,
		}, true
	case "dup", "fwd", "queue", "flow_offload", "synproxy":
		return expressionKind{}, true
	}
	return expressionKind{}, false
}

// unknownExpression is the name of the placeholder for expressions that [Rule.Expressions] does not
// specify. The kernel has no expression with the name.
const unknownExpression = "unknown"

// addUnknownExpression adds the rules.Unknown for the next placeholder.
func (d *ruleDecoder) addUnknownExpression() {
	u := d.unknowns[0]
	d.unknowns = d.unknowns[1:]
	d.unhashedCount++
	d.inputs = rules.AllInputs
	if u.Effect == rules.AnyEffect {
		d.registers = [registerCount]*operand{}
	}
	d.addUnknown(u.Text, u.Effect, rules.NoData)
}

// decodeExpression adds the conditions and actions of an expression, or changes the registers that
// it loads. It adds an unknown condition or action if the model cannot represent the expression.
func (d *ruleDecoder) decodeExpression(name string, a attributes) {
	if name == unknownExpression && len(d.unknowns) > 0 {
		d.addUnknownExpression()
		return
	}
	d.inputs |= d.expressionInputs(name, a)
	switch name {
	case "ct", "notrack", "socket", "fib":
		d.differsFromXTables = true
	}
	kind, _ := kindOfExpression(name)
	err := errUnsupported
	if kind.decode != nil {
		err = kind.decode(d, a)
	}
	d.unhashedCount++
	if err == nil {
		return
	}
	loads := kind.destination != 0 && a.Get(kind.destination) != nil
	if loads && (kind.written == 0 || a.Get(kind.written) == nil) {
		if d.loadUnknown(name, kind, a) == nil {
			return
		}
	}
	effect := kind.effect
	if source := (sourceTranslation{}); errors.As(err, &source) {
		effect = rules.TranslatesSource
		if source.text != "" {
			d.addUnknown(source.text, effect, "")
			return
		}
	}
	if effect == rules.AnyEffect {
		// The expression may write to any register.
		d.registers = [registerCount]*operand{}
	}
	d.addUnknown(unknownText(name, err), effect, d.unknownData(name, a))
}

// unknownData returns the data of an expression that the model cannot represent. Expressions with
// equal data are equal.
func (d *ruleDecoder) unknownData(name string, a attributes) string {
	data := d.identity()
	switch {
	case name == "objref" || name == "flow_offload":
		return rules.NoData // only the name of the object is read
	case name == "dup" && a.Get(unix.NFTA_DUP_SREG_DEV) != nil && d.indexScope != (netns.ID{}) &&
		data != rules.NoData:
		return fmt.Sprintf("%s index in %v", data, d.indexScope)
	}
	return data
}

// decodeNotrack decodes the action that excludes the packet from conntrack.
func (d *ruleDecoder) decodeNotrack(attributes) error {
	d.addAction(rules.Notrack{})
	return nil
}

// decodeInner decodes a nested expression, which loads a field of a packet in a tunnel into any
// register.
func (d *ruleDecoder) decodeInner(attributes) error {
	d.registers = [registerCount]*operand{}
	d.addUnknown("inner", rules.Reads, rules.NoData)
	return nil
}
