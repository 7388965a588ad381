package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses matches of header fields that the model does not represent.

// unknownWithText records that the match is unknown. It uses the text only if ok is true and the
// match has exactly one option. ok reports whether this option is valid.
func (r *moduleReader) unknownWithText(ok bool, text string) []rules.Match {
	r.isUnknown = true
	if ok && len(r.options) == 1 {
		r.text = text
	}
	return nil
}

// matchLength parses the match length.
func (r *moduleReader) matchLength() []rules.Match {
	first, last, ok := numberRange(r.optionValue("--length", ""), 16)
	return r.unknownWithText(ok, xt.LengthText(r.isNegated(), uint16(first), uint16(last)))
}

// matchHopLimit parses the matches ttl and hl. Only the test of equality can be negated.
func (r *moduleReader) matchHopLimit() []rules.Match {
	if len(r.options) != 1 {
		return r.unknownWithText(false, "")
	}
	o := r.options[0]
	comparison := xt.HopsEqual
	switch {
	case strings.HasSuffix(o.name, "-lt"):
		comparison = xt.HopsBelow
	case strings.HasSuffix(o.name, "-gt"):
		comparison = xt.HopsAbove
	case o.not:
		comparison = xt.HopsDiffer
	}
	family := rules.IPv4
	if r.kernelName == "hl" {
		family = rules.IPv6
	}
	n, ok := number(o.values[0].text, 8)
	text, _ := xt.HopMatchText(family, comparison, uint8(n))
	return r.unknownWithText(ok && (!o.not || comparison == xt.HopsDiffer), text)
}

// matchDSCP parses the match dscp. It does not resolve the name of a class.
func (r *moduleReader) matchDSCP() []rules.Match {
	n, ok := r.numberOption("--dscp", 6)
	return r.unknownWithText(ok, xt.DSCPMatchText(r.isNegated(), uint8(n)))
}

// matchTOS parses the match tos. It does not resolve the name of a value.
func (r *moduleReader) matchTOS() []rules.Match {
	value, mask, ok := tosValue(r.optionValue("--tos", ""))
	return r.unknownWithText(ok, xt.TOSMatchText(r.isNegated(), value, mask))
}

// tosValue parses a value of TOS with an optional mask.
func tosValue(text string) (value, mask uint8, ok bool) {
	first, last, hasMask := strings.Cut(text, "/")
	v, ok := number(first, 8)
	m, maskValid := number(last, 8)
	if !hasMask {
		m, maskValid = 0xff, true
	}
	return uint8(v), uint8(m), ok && maskValid
}
