package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchSet parses the match set. An option that compares the counters of an element makes the match
// unknown.
func (r *moduleReader) matchSet() []rules.Match {
	o := r.option("--match-set")
	if o == nil {
		o = r.option("--set")
	}
	if o == nil {
		r.fail(r.flag, "--match-set after it")
		return nil
	}
	m := rules.MatchListed{
		Not: o.not, List: "ipset " + o.values[0].text, Parts: o.values[1].text,
		State: xt.StateOfSets,
	}
	parts := strings.Split(m.Parts, ",")
	for _, part := range parts {
		if part != "src" && part != "dst" {
			r.fail(o.values[1], "src, dst, or a list of them for a set of several fields")
		}
		m.Source = m.Source || part == "src"
		m.Destination = m.Destination || part == "dst"
	}
	m.OtherFields = len(parts) > 1
	for _, other := range r.options {
		switch other.name {
		case "--match-set", "--set", "--update-counters", "--update-subcounters":
		case "--return-nomatch":
			m.Parts += " " + other.name
		default:
			r.isUnknown, r.state = true, xt.StateOfSets
		}
	}
	return []rules.Match{m}
}
