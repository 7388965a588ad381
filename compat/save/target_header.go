package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses targets that change a part of the header that the model does not represent.

// known returns the action if the target has a single option, which is known. Otherwise the target
// is unknown.
func (r *moduleReader) known(ok bool, a rules.Action) rules.Action {
	u, isUnknown := a.(rules.Unknown)
	r.text = u.Text
	if _, complete := r.unknownText(); ok && isUnknown && complete && len(r.options) == 1 {
		return a
	}
	r.text, r.isUnknown = "", true
	return nil
}

// numberOf returns the number of an option, which must be the only option of the target.
func (r *moduleReader) numberOf(name string, bits int) (n uint64, ok bool) {
	return number(r.valueOf(name, ""), bits)
}

// segmentSize parses the target TCPMSS.
func (r *moduleReader) segmentSize() rules.Action {
	size, ok := r.numberOf("--set-mss", 16)
	if r.option("--clamp-mss-to-pmtu") != nil {
		size, ok = xt.ClampMSS, true
	}
	return r.known(ok, xt.TCPMSS(uint16(size)))
}

// checksum parses the target CHECKSUM.
func (r *moduleReader) checksum() rules.Action { return r.known(true, xt.FillChecksum()) }

// hopLimit parses the targets TTL and HL.
func (r *moduleReader) hopLimit() rules.Action {
	for mode, suffix := range []string{"set", "inc", "dec"} {
		name := "--ttl-" + suffix
		if r.family == rules.IPv6 {
			name = "--hl-" + suffix
		}
		if n, ok := r.numberOf(name, 8); ok {
			return r.known(true, xt.HopLimit(r.family, xt.HopMode(mode), uint8(n)))
		}
	}
	return r.known(false, nil)
}

// dscp parses the target DSCP. The name of a class is unknown.
func (r *moduleReader) dscp() rules.Action {
	n, ok := r.numberOf("--set-dscp", 6)
	return r.known(ok, xt.DSCP(uint8(n)))
}

// tos parses the target TOS. The name of a value is unknown.
func (r *moduleReader) tos() rules.Action {
	value, mask, ok := tosValue(r.valueOf("--set-tos", ""))
	if n, isNumber := r.numberOf("--and-tos", 8); isNumber {
		value, mask, ok = 0, ^uint8(n), true
	}
	if n, isNumber := r.numberOf("--or-tos", 8); isNumber {
		value, mask, ok = uint8(n), uint8(n), true
	}
	if n, isNumber := r.numberOf("--xor-tos", 8); isNumber {
		value, mask, ok = uint8(n), 0, true
	}
	return r.known(ok, xt.TOS(value, mask))
}

// classify parses the target CLASSIFY.
func (r *moduleReader) classify() rules.Action {
	major, minor, _ := strings.Cut(r.valueOf("--set-class", ""), ":")
	first, ok := number("0x"+major, 16)
	last, lastValid := number("0x"+minor, 16)
	return r.known(ok && lastValid, xt.Classify(uint32(first<<16|last)))
}
