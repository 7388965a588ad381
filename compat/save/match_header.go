package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file contains matches of parts of the header that the model does not represent.

// textIf sets the text of an unknown match with a single option, if the option is valid.
func (r *moduleReader) textIf(ok bool, text string) []rules.Match {
	r.isUnknown = true
	if ok && len(r.options) == 1 {
		r.text = text
	}
	return nil
}

// isNegated reports whether the only option is negated.
func (r *moduleReader) isNegated() bool { return len(r.options) == 1 && r.options[0].not }

// length parses the match length.
func (r *moduleReader) length() []rules.Match {
	first, last, ok := numberRange(r.valueOf("--length", ""), 16)
	return r.textIf(ok, xt.LengthText(r.isNegated(), uint16(first), uint16(last)))
}

// numberRange parses a number, or a range "FIRST:LAST" in which either end may be missing.
func numberRange(text string, bits int) (first, last uint32, ok bool) {
	firstText, lastText, isRange := strings.Cut(text, ":")
	a, ok := number(firstText, bits)
	if !isRange {
		return uint32(a), uint32(a), ok
	}
	b, lastValid := number(lastText, bits)
	if lastText == "" {
		b, lastValid = 1<<bits-1, true
	}
	return uint32(a), uint32(b), (ok || firstText == "") && lastValid && a <= b
}

// hops parses the matches ttl and hl. Only the test of equality can be negated.
func (r *moduleReader) hops() []rules.Match {
	if len(r.options) != 1 {
		return r.textIf(false, "")
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
	return r.textIf(ok && (!o.not || comparison == xt.HopsDiffer), text)
}

// dscpMatch parses the match dscp. The name of a class is unknown.
func (r *moduleReader) dscpMatch() []rules.Match {
	n, ok := number(r.valueOf("--dscp", ""), 6)
	return r.textIf(ok, xt.DSCPMatchText(r.isNegated(), uint8(n)))
}

// tosMatch parses the match tos. The name of a value is unknown.
func (r *moduleReader) tosMatch() []rules.Match {
	value, mask, ok := tosValue(r.valueOf("--tos", ""))
	return r.textIf(ok, xt.TOSMatchText(r.isNegated(), value, mask))
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
