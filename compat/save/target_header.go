package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses CLASSIFY, and the targets that change header fields that the model does not
// represent.

// actionOrUnknown returns the action if ok is true and the target has exactly one option. Otherwise
// it records that the target is unknown, and returns nil.
func (r *moduleReader) actionOrUnknown(ok bool, a rules.Action) rules.Action {
	u, isUnknown := a.(rules.Unknown)
	r.text = u.Text
	if _, complete := r.unknownText(); ok && isUnknown && complete && len(r.options) == 1 {
		return a
	}
	r.text, r.isUnknown = "", true
	return nil
}

// targetTCPMSS parses the target TCPMSS.
func (r *moduleReader) targetTCPMSS() rules.Action {
	size, ok := r.numberOption("--set-mss", 16)
	if r.option("--clamp-mss-to-pmtu") != nil {
		size, ok = xt.ClampMSS, true
	}
	return r.actionOrUnknown(ok, xt.TCPMSS(uint16(size)))
}

// targetChecksum parses the target CHECKSUM.
func (r *moduleReader) targetChecksum() rules.Action {
	return r.actionOrUnknown(true, xt.FillChecksum())
}

// targetHopLimit parses the targets TTL and HL.
func (r *moduleReader) targetHopLimit() rules.Action {
	for mode, suffix := range []string{"set", "inc", "dec"} {
		name := "--ttl-" + suffix
		if r.family == rules.IPv6 {
			name = "--hl-" + suffix
		}
		if n, ok := r.numberOption(name, 8); ok {
			return r.actionOrUnknown(true, xt.HopLimit(r.family, xt.HopMode(mode), uint8(n)))
		}
	}
	return r.actionOrUnknown(false, nil)
}

// targetDSCP parses the target DSCP. It does not resolve the name of a class.
func (r *moduleReader) targetDSCP() rules.Action {
	n, ok := r.numberOption("--set-dscp", 6)
	return r.actionOrUnknown(ok, xt.DSCP(uint8(n)))
}

// targetTOS parses the target TOS. It does not resolve the name of a value.
func (r *moduleReader) targetTOS() rules.Action {
	value, mask, ok := tosValue(r.optionValue("--set-tos", ""))
	if n, isNumber := r.numberOption("--and-tos", 8); isNumber {
		value, mask, ok = 0, ^uint8(n), true
	}
	if n, isNumber := r.numberOption("--or-tos", 8); isNumber {
		value, mask, ok = uint8(n), uint8(n), true
	}
	if n, isNumber := r.numberOption("--xor-tos", 8); isNumber {
		value, mask, ok = uint8(n), 0, true
	}
	return r.actionOrUnknown(ok, xt.TOS(value, mask))
}

// targetClassify parses the target CLASSIFY.
func (r *moduleReader) targetClassify() rules.Action {
	majorText, minorText, _ := strings.Cut(r.optionValue("--set-class", ""), ":")
	major, ok := number("0x"+majorText, 16)
	minor, minorValid := number("0x"+minorText, 16)
	return r.actionOrUnknown(ok && minorValid, xt.Classify(uint32(major<<16|minor)))
}
