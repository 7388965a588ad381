package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses matches of header fields that the model does not represent.

// lengthText returns the text of a match of the module length (-m length).
func (r *moduleReader) lengthText() (text string, ok bool) {
	first, last, ok := numberRange(r.optionValue("--length", ""), 16)
	return xt.LengthText(r.isNegated(), uint16(first), uint16(last)), ok
}

// hopLimitText returns the text of the match ttl or hl. Only the test of equality can be negated.
func (r *moduleReader) hopLimitText() (text string, ok bool) {
	if len(r.options) != 1 {
		return "", false
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
	text, _ = xt.HopMatchText(family, comparison, uint8(n))
	return text, ok && (!o.not || comparison == xt.HopsDiffer)
}

// dscpText returns the text of the match dscp. It does not resolve the name of a class.
func (r *moduleReader) dscpText() (text string, ok bool) {
	n, ok := r.numberOption("--dscp", 6)
	return xt.DSCPMatchText(r.isNegated(), uint8(n)), ok && len(r.options) == 1
}

// tosText returns the text of the match tos. It does not resolve the name of a value.
func (r *moduleReader) tosText() (text string, ok bool) {
	value, mask, ok := tosValue(r.optionValue("--tos", ""))
	return xt.TOSMatchText(r.isNegated(), value, mask), ok
}

// tosValue parses a value of TOS with an optional mask.
func tosValue(text string) (value, mask uint8, ok bool) {
	valueText, maskText, hasMask := strings.Cut(text, "/")
	v, ok := number(valueText, 8)
	m, maskValid := number(maskText, 8)
	if !hasMask {
		m, maskValid = 0xff, true
	}
	return uint8(v), uint8(m), ok && maskValid
}
