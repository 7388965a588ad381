package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// An expressionKind describes a type of nf_tables expression.
type expressionKind struct {
	name string
	// decode decodes an expression, or returns an error if the model cannot represent it. It is nil
	// if the model cannot represent any expression of the type.
	decode func(*ruleDecoder, attributes) error
	// The following fields are used if decode is nil or returns an error.
	//
	// destination is the attribute with the register that the expression loads, 0 if it loads none.
	// sources contains the attributes with the registers that the loaded value depends on. written
	// is the attribute with the register whose value the expression writes, for example to the
	// packet, if it writes instead of loading.
	destination uint16
	sources     [2]uint16
	written     uint16
	// effect is the effect of expressions that load no register, in addition to ending the rule.
	// The zero value is [rules.AnyEffect].
	effect rules.Effect
}

// expressionKinds contains the kinds of all expressions that Linux 6.18 registers with
// nft_register_expr and in nft_basic_types (net/netfilter/nf_tables_core.c). An expression with
// another name may have any effect.
var expressionKinds = [...]expressionKind{
	// Loads, and expressions that change a loaded value.
	{name: "immediate", decode: (*ruleDecoder).decodeImmediate},
	{
		name: "meta", decode: (*ruleDecoder).decodeMeta, destination: unix.NFTA_META_DREG,
		written: unix.NFTA_META_SREG,
	},
	{
		name: "ct", decode: (*ruleDecoder).decodeCT, destination: unix.NFTA_CT_DREG,
		written: unix.NFTA_CT_SREG,
	},
	{
		name: "payload", decode: (*ruleDecoder).decodePayload, destination: unix.NFTA_PAYLOAD_DREG,
		written: unix.NFTA_PAYLOAD_SREG,
	},
	{name: "fib", decode: (*ruleDecoder).decodeFIB, destination: unix.NFTA_FIB_DREG},
	{name: "socket", decode: (*ruleDecoder).decodeSocket, destination: expr.NFTA_SOCKET_DREG},
	{name: "numgen", decode: (*ruleDecoder).decodeNumgen, destination: unix.NFTA_NG_DREG},
	{
		name: "hash", decode: (*ruleDecoder).decodeHash, destination: unix.NFTA_HASH_DREG,
		sources: [2]uint16{unix.NFTA_HASH_SREG},
	},
	{
		name: "bitwise", decode: (*ruleDecoder).decodeBitwise, destination: unix.NFTA_BITWISE_DREG,
		sources: [2]uint16{unix.NFTA_BITWISE_SREG, nftaBitwiseSreg2},
	},
	{
		name: "byteorder", decode: (*ruleDecoder).decodeByteorder, destination: unix.NFTA_BYTEORDER_DREG,
		sources: [2]uint16{unix.NFTA_BYTEORDER_SREG},
	},
	{
		name: "exthdr", decode: (*ruleDecoder).decodeHeaderOption, destination: unix.NFTA_EXTHDR_DREG,
		written: unix.NFTA_EXTHDR_SREG,
	},
	{name: "rt", destination: unix.NFTA_RT_DREG},
	{name: "osf", destination: nftaOsfDreg},
	{name: "tunnel", destination: nftaTunnelDreg},
	{name: "xfrm", destination: nftaXfrmDreg},
	{name: "inner", decode: (*ruleDecoder).decodeInner}, // contains another expression that loads

	// Conditions.
	{name: "cmp", decode: (*ruleDecoder).decodeCompare, effect: rules.Reads},
	{name: "range", decode: (*ruleDecoder).decodeCompareRange, effect: rules.Reads},
	{name: "lookup", decode: (*ruleDecoder).decodeLookup}, // also loads; a verdict map ends rules
	{name: "limit", decode: (*ruleDecoder).decodeLimitRate, effect: rules.ReadsVarying},
	{name: "quota", decode: (*ruleDecoder).decodeQuota, effect: rules.ReadsHistory},
	{name: "connlimit", decode: (*ruleDecoder).decodeConnlimit},
	// dynset changes a set; it ends the rule if the set is full or a limit is exceeded.
	{name: "dynset", decode: (*ruleDecoder).decodeDynset, effect: rules.Reads},
	{name: "match", decode: (*ruleDecoder).decodeExtensionMatch},

	// Actions, and expressions without an effect.
	{name: "counter", decode: (*ruleDecoder).decodeCounter},
	{name: "log", decode: (*ruleDecoder).decodeLog},
	{name: "last", decode: (*ruleDecoder).decodeLast},
	{name: "objref", decode: (*ruleDecoder).decodeObjref},
	{name: "notrack", decode: (*ruleDecoder).decodeNotrack},
	{name: "nat", decode: (*ruleDecoder).decodeNAT},
	{name: "redir", decode: (*ruleDecoder).decodeRedirect},
	{name: "tproxy", decode: (*ruleDecoder).decodeTProxy},
	{name: "reject", decode: (*ruleDecoder).decodeReject},
	{name: "target", decode: (*ruleDecoder).decodeExtensionTarget},
	{name: "masq", decode: (*ruleDecoder).decodeMasquerade, effect: rules.TranslatesSource},
	{name: "dup"},
	{name: "fwd"},
	{name: "queue"},
	{name: "flow_offload"},
	{name: "synproxy"},
}

// kindOfExpression returns the kind of the expressions with the name. If the name is unknown, the
// kind is empty.
func kindOfExpression(name string) (kind *expressionKind, known bool) {
	for i := range expressionKinds {
		if expressionKinds[i].name == name {
			return &expressionKinds[i], true
		}
	}
	return &expressionKind{}, false
}

// unknownExpression is the name of the placeholder for a [rules.Unknown] in [Rule.Expressions]. The
// kernel has no expression with this name.
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

// decodeExpression adds the conditions and actions of an expression, or sets the registers that it
// loads. It adds an unknown condition or action if the model cannot represent the expression.
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

// unknownData returns the [rules.Unknown.Data] of an expression that the model cannot represent.
func (d *ruleDecoder) unknownData(name string, a attributes) string {
	data := d.identity()
	switch {
	case name == "objref" || name == "flow_offload":
		return rules.NoData // the object itself, which the name refers to, is not read
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

// ipv4Protocol is the field that iptables-nft before 1.8.8 loads to match the transport protocol,
// instead of meta l4proto.
var ipv4Protocol = payload{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}

// decodeLog decodes a log statement, without its prefix and flags.
func (d *ruleDecoder) decodeLog(a attributes) error {
	const levelAudit = 8 // NFT_LOGLEVEL_AUDIT
	action := xt.NoEffect("LOG")
	if group, ok := networkNumber[uint16](a.Get(unix.NFTA_LOG_GROUP)); ok {
		action = xt.LogToGroup(group)
	} else if a.Number(unix.NFTA_LOG_LEVEL) == levelAudit {
		action = xt.NoEffect("AUDIT")
	}
	d.addNoEffect("log", a, action)
	return nil
}

// decodeLast decodes an expression that stores the time of the last packet, which no rule reads.
func (d *ruleDecoder) decodeLast(a attributes) error {
	d.addNoEffect("last", a, rules.NoEffect{Text: "last"})
	return nil
}

// decodeExtensionTarget decodes an xtables target. iptables-nft uses targets if nf_tables has no
// equivalent expression.
func (d *ruleDecoder) decodeExtensionTarget(a attributes) error {
	d.rule.XTables = true
	name := a.Text(unix.NFTA_TARGET_NAME)
	action := xt.DecodeTarget(d.family, xt.Extension{
		Name: name, Revision: a.Number(unix.NFTA_TARGET_REV), Data: a.Get(unix.NFTA_TARGET_INFO),
	})
	if none, ok := action.(rules.NoEffect); ok {
		d.addNoEffect("-j "+name, a, none)
	} else {
		d.addAction(action)
	}
	return nil
}

// decodeExtensionMatch decodes an xtables match. iptables-nft uses matches if nf_tables has no
// equivalent expression.
func (d *ruleDecoder) decodeExtensionMatch(a attributes) error {
	d.rule.XTables = true
	matches := xt.DecodeMatch(&d.rule, d.family, xt.Extension{
		Name: a.Text(unix.NFTA_MATCH_NAME), Revision: a.Number(unix.NFTA_MATCH_REV),
		Data: a.Get(unix.NFTA_MATCH_INFO),
	})
	for _, m := range matches {
		d.addMatch(m)
	}
	return nil
}
