package save

import (
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchIPRange parses the match iprange.
func (r *moduleReader) matchIPRange() []rules.Match {
	var list []rules.Match
	for _, o := range r.options {
		side := rules.Source
		if o.name == "--dst-range" {
			side = rules.Destination
		}
		list = append(list, xt.AddrRange(side, o.not, r.addressRange(o.values[0]))...)
	}
	if len(r.options) == 0 {
		r.fail(r.flag, "--src-range or --dst-range after it")
	}
	return list
}

// addIPRange writes the match iprange.
func (p *rulePrinter) addIPRange(m rules.MatchAddr) error {
	p.add("-m", "iprange")
	option := map[rules.Side]string{
		rules.Source: "--src-range", rules.Destination: "--dst-range",
	}[m.Side]
	p.addOption(m.Not, option, m.Ranges[0].From().String()+"-"+m.Ranges[0].To().String())
	return nil
}

// addressRange parses "FIRST-LAST" or a single address. iptables accepts a reversed range, with a
// warning.
func (r *moduleReader) addressRange(w word) netipx.IPRange {
	from, to, isRange := strings.Cut(w.text, "-")
	if !isRange {
		to = from
	}
	a, okA := r.shortAddress(from)
	b, okB := r.shortAddress(to)
	if !okA || !okB {
		r.fail(w, "a range of addresses of the family, such as 10.0.0.1-10.0.0.9")
	}
	return netipx.IPRangeFrom(a, b)
}
