package nft

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// An expressionKind says what an expression of nf_tables may do.
type expressionKind struct {
	// decode carries the expression out. Its error says that the model has no word for this form.
	// It is nil if that holds for all.
	decode func(*ruleDecoder, attributes) error
	// What the forms may do that decode does not know:
	//
	// They load a register that the attribute destination names, if the expression has that
	// attribute. What they load depends on what the registers hold that the attributes sources
	// name, if there are such.
	destination uint16
	sources     [2]uint16
	// effect is what forms that load nothing may do, besides ending the rule.
	effect rules.Effect
}

// expressionNamed returns the kind of the expression with the name. The list has all that Linux
// 6.18 registers, with nft_register_expr and in nft_basic_types (net/netfilter/nf_tables_core.c).
// One that is not in the list may do anything.
func expressionNamed(name string) (kind expressionKind, known bool) {
	switch name {
	// Loads, and what changes a loaded value.
	case "immediate":
		return expressionKind{decode: (*ruleDecoder).immediate}, true
	case "meta":
		return expressionKind{decode: (*ruleDecoder).meta, destination: unix.NFTA_META_DREG}, true
	case "ct":
		return expressionKind{decode: (*ruleDecoder).ct, destination: unix.NFTA_CT_DREG}, true
	case "payload":
		return expressionKind{decode: (*ruleDecoder).payload, destination: unix.NFTA_PAYLOAD_DREG}, true
	case "fib":
		return expressionKind{decode: (*ruleDecoder).fib, destination: unix.NFTA_FIB_DREG}, true
	case "socket":
		return expressionKind{decode: (*ruleDecoder).socket, destination: nftaSocketDreg}, true
	case "numgen":
		return expressionKind{decode: (*ruleDecoder).numgen, destination: unix.NFTA_NG_DREG}, true
	case "hash":
		return expressionKind{
			decode: (*ruleDecoder).hash, destination: unix.NFTA_HASH_DREG, sources: [2]uint16{unix.NFTA_HASH_SREG},
		}, true
	case "bitwise":
		return expressionKind{
			decode: (*ruleDecoder).bitwise, destination: unix.NFTA_BITWISE_DREG, sources: [2]uint16{unix.NFTA_BITWISE_SREG, nftaBitwiseSreg2},
		}, true
	case "byteorder":
		return expressionKind{
			decode: (*ruleDecoder).byteorder, destination: unix.NFTA_BYTEORDER_DREG, sources: [2]uint16{unix.NFTA_BYTEORDER_SREG},
		}, true
	case "exthdr": // also sets and removes TCP options
		return expressionKind{destination: unix.NFTA_EXTHDR_DREG}, true
	case "rt":
		return expressionKind{destination: unix.NFTA_RT_DREG}, true
	case "osf":
		return expressionKind{destination: nftaOsfDreg}, true
	case "tunnel":
		return expressionKind{destination: nftaTunnelDreg}, true
	case "xfrm":
		return expressionKind{destination: nftaXfrmDreg}, true
	case "inner": // loads what the expression loads that it holds
		return expressionKind{decode: (*ruleDecoder).inner}, true

	// Conditions.
	case "cmp":
		return expressionKind{decode: (*ruleDecoder).compare, effect: rules.Reads}, true
	case "range":
		return expressionKind{decode: (*ruleDecoder).compareRange, effect: rules.Reads}, true
	case "lookup": // also loads, and with a verdict map ends the rule
		return expressionKind{decode: (*ruleDecoder).lookup}, true
	case "limit":
		return expressionKind{decode: (*ruleDecoder).limitRate, effect: rules.Draws}, true
	case "quota":
		return expressionKind{decode: (*ruleDecoder).quota, effect: rules.Draws}, true
	case "connlimit":
		return expressionKind{decode: (*ruleDecoder).connlimit}, true
	case "dynset": // changes a set, and ends the rule if that is full or a limit in it exceeded
		return expressionKind{decode: (*ruleDecoder).dynset, effect: rules.Reads}, true
	case "match":
		return expressionKind{decode: (*ruleDecoder).extensionMatch}, true

	// Effects, and what has none.
	case "counter":
		return expressionKind{decode: (*ruleDecoder).counter}, true
	case "log", "last":
		return expressionKind{decode: (*ruleDecoder).noEffect}, true
	case "objref":
		return expressionKind{decode: (*ruleDecoder).objref}, true
	case "notrack":
		return expressionKind{decode: (*ruleDecoder).notrack}, true
	case "nat":
		return expressionKind{decode: (*ruleDecoder).nat}, true
	case "redir":
		return expressionKind{decode: (*ruleDecoder).redirect}, true
	case "tproxy":
		return expressionKind{decode: (*ruleDecoder).tproxy}, true
	case "reject":
		return expressionKind{decode: (*ruleDecoder).reject}, true
	case "target":
		return expressionKind{decode: (*ruleDecoder).extensionTarget}, true
	case "masq":
		return expressionKind{effect: rules.TranslatesSource}, true
	case "dup", "fwd", "queue", "flow_offload", "synproxy":
		return expressionKind{}, true
	}
	return expressionKind{}, false
}

// expression carries out one expression.
func (d *ruleDecoder) expression(name string, a attributes) {
	kind, _ := expressionNamed(name)
	err := errUnsupported
	if kind.decode != nil {
		err = kind.decode(d, a)
	}
	d.unhashed++
	if err == nil {
		return
	}
	if kind.destination != 0 && a.Get(kind.destination) != nil {
		if d.loadUnknown(name, kind, a) == nil {
			return
		}
	}
	effect := kind.effect
	if source := (sourceTranslation{}); errors.As(err, &source) {
		effect = rules.TranslatesSource
	}
	if effect == rules.Anything {
		// It may have written to any register.
		d.registers = [registerCount]*operand{}
	}
	d.unknown(unknownText(name, err), effect, d.identity())
}

// noEffect stands for an expression that changes nothing of what the model has.
func (d *ruleDecoder) noEffect(attributes) error {
	d.count()
	return nil
}

func (d *ruleDecoder) notrack(attributes) error {
	d.act(rules.Notrack{})
	return nil
}

// inner loads a field of a packet inside a tunnel, by an expression of its own. That may be to any
// register.
func (d *ruleDecoder) inner(attributes) error {
	d.registers = [registerCount]*operand{}
	d.unknown("inner", rules.Reads, rules.NoData)
	return nil
}
