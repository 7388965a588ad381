package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// This file decodes conditions that depend on earlier packets.

// addStateful adds a condition whose result depends on the packets for which it was evaluated
// earlier, and therefore on the preceding conditions of the rule.
func (d *ruleDecoder) addStateful(text string, effect rules.Effect) error {
	d.addUnknown(text, effect, d.precondition(""))
	return nil
}

// overText returns the text for the flags of a limit. In all kinds of limits the flag 1, such as
// NFT_CONNLIMIT_F_INV, inverts the condition.
func overText(flags uint32) string {
	if flags&unix.NFT_LIMIT_F_INV != 0 {
		return "over "
	}
	return ""
}

// decodeLimitRate decodes a limit of packets or bytes per time.
func (d *ruleDecoder) decodeLimitRate(a attributes) error {
	unit, ok := map[uint64]string{
		1: "second", 60: "minute", 3600: "hour", 86400: "day", 604800: "week",
	}[a.Number64(unix.NFTA_LIMIT_UNIT)]
	if !ok {
		unit = fmt.Sprintf("%d seconds", a.Number64(unix.NFTA_LIMIT_UNIT))
	}
	rateUnit, burstUnit, effect := "", "packets", rules.ReadsVarying
	if a.Number(unix.NFTA_LIMIT_TYPE) == unix.NFT_LIMIT_PKT_BYTES {
		// Not ReadsVarying, because every packet may be larger than the limit.
		rateUnit, burstUnit, effect = " bytes", "bytes", rules.ReadsHistory
	}
	return d.addStateful(fmt.Sprintf("limit rate %s%d%s/%s burst %d %s",
		overText(a.Number(unix.NFTA_LIMIT_FLAGS)), a.Number64(unix.NFTA_LIMIT_RATE), rateUnit, unit,
		a.Number(unix.NFTA_LIMIT_BURST), burstUnit), effect)
}

// decodeQuota decodes a limit of the total number of bytes.
func (d *ruleDecoder) decodeQuota(a attributes) error {
	return d.addStateful(fmt.Sprintf("quota %s%d bytes",
		overText(a.Number(unix.NFTA_QUOTA_FLAGS)), a.Number64(unix.NFTA_QUOTA_BYTES)),
		rules.ReadsHistory)
}

// decodeConnlimit decodes a limit of connections. The kernel drops a packet whose connection cannot
// be counted (nft_connlimit_do_eval in net/netfilter/nft_connlimit.c).
func (d *ruleDecoder) decodeConnlimit(a attributes) error {
	d.addUnknown(fmt.Sprintf("ct count %s%d",
		overText(a.Number(expr.NFTA_CONNLIMIT_FLAGS)), a.Number(expr.NFTA_CONNLIMIT_COUNT)),
		rules.AnyEffect, d.identity())
	return nil
}

// decodeDynset decodes the addition of an element to a set, or the deletion of an element. Neither
// changes the packet, but the expression ends the rule if the set is full, or if a limit of the
// element is exceeded.
func (d *ruleDecoder) decodeDynset(a attributes) error {
	d.pending = nil // the expression also ends the rule if a loaded field is missing
	name := a.Text(unix.NFTA_DYNSET_SET_NAME)
	s := d.sets[name]
	data, change := d.identityWith(a), s.changeIdentity()
	if data == rules.NoData || change == rules.NoData {
		data = rules.NoData
	} else {
		data += " " + change
	}
	d.addCondition(rules.Unknown{
		Text: "dynset @" + name, Effect: rules.ReadsAndWrites, Data: data, State: s.state(name),
	})
	return nil
}

// writeState adds the change of a state that affects only unknown conditions.
func (d *ruleDecoder) writeState(state string, a attributes) {
	d.addCondition(rules.Unknown{
		Text: state + " set", Effect: rules.Writes, Data: d.identityWith(a), State: state,
	})
}

// identityWith returns the identity of the expressions so far and of the current one, which has the
// given attributes.
func (d *ruleDecoder) identityWith(a attributes) string {
	id := d.identity()
	if id == rules.NoData {
		return id
	}
	return fmt.Sprintf("%s %x", id, []byte(a))
}

// decodeObjref decodes the use of a named object of the table, such as a counter. The object itself
// is not read.
func (d *ruleDecoder) decodeObjref(a attributes) error {
	name := a.Text(unix.NFTA_OBJREF_IMM_NAME)
	switch kind := a.Number(unix.NFTA_OBJREF_IMM_TYPE); kind {
	case unix.NFT_OBJECT_COUNTER:
		d.addNoEffect("counter name "+name, a, rules.NoEffect{Text: fmt.Sprintf("counter name %q", name)})
	case unix.NFT_OBJECT_CT_TIMEOUT, unix.NFT_OBJECT_SECMARK:
		state := "meta secmark"
		if kind == unix.NFT_OBJECT_CT_TIMEOUT { // determines when the connection expires
			state = "ct timeout"
		}
		d.addCondition(rules.Unknown{
			Text: state + " set " + name, Effect: rules.Writes, Data: rules.NoData, State: state,
		})
	case unix.NFT_OBJECT_QUOTA, unix.NFT_OBJECT_LIMIT, unix.NFT_OBJECT_CONNLIMIT:
		condition := map[uint32]string{
			unix.NFT_OBJECT_QUOTA: "quota", unix.NFT_OBJECT_LIMIT: "limit",
			unix.NFT_OBJECT_CONNLIMIT: "ct count",
		}[kind]
		d.addUnknown(condition+" name "+name, rules.ReadsHistory, rules.NoData)
	default:
		return errUnsupported
	}
	return nil
}
