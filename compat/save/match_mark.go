package save

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// matchMark parses the match mark.
func (r *moduleReader) matchMark() []rules.Match { return r.markOption(false) }

// matchConnmark parses the match connmark.
func (r *moduleReader) matchConnmark() []rules.Match { return r.markOption(true) }

// markOption parses the option --mark of the matches mark and connmark.
func (r *moduleReader) markOption(conntrack bool) []rules.Match {
	o := r.requiredOption("--mark")
	if o == nil {
		return nil
	}
	m := rules.MatchMark{Conntrack: conntrack, Not: o.not}
	m.Value, m.Mask = r.mark(o.values[0])
	return []rules.Match{m}
}

// addMark writes the match mark or connmark.
func (p *rulePrinter) addMark(m rules.MatchMark) error {
	p.add("-m", map[bool]string{false: "mark", true: "connmark"}[m.Conntrack])
	text := fmt.Sprintf("0x%x", m.Value)
	if m.Mask != allBits {
		text = maskedMark(m.Value, m.Mask)
	}
	p.addOption(m.Not, "--mark", text)
	return nil
}
