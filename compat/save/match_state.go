package save

import (
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// The following matches and targets depend on state of earlier packets, or change such state.

// recent parses the match recent, which keeps a named list of addresses. --set adds the packet's
// address and always matches (recent_mt in net/netfilter/xt_recent.c).
func (r *moduleReader) recent() []rules.Match {
	r.unknown = true
	r.state = xt.StateOfRecent(r.valueOf("--name", "DEFAULT"))
	set := r.option("--set")
	switch {
	case set != nil && !set.not:
		r.effect = rules.Writes
	case set != nil || r.option("--update") != nil || r.option("--remove") != nil ||
		r.option("--reap") != nil:
		r.effect = rules.ReadsAndWrites
	}
	return nil
}

// valueOf returns the value of an option, or the default if it is not given.
func (r *moduleReader) valueOf(name, otherwise string) string {
	if o := r.option(name); o != nil {
		return o.values[0].text
	}
	return otherwise
}

// hashLimit parses the match hashlimit. Rules with the same name share their counters.
func (r *moduleReader) hashLimit() []rules.Match {
	r.unknown, r.state = true, xt.StateOfHashLimit(r.valueOf("--hashlimit-name", ""))
	return nil
}

// account parses the match nfacct. It counts packets in an object, and matches unless the object
// has a quota that is not used up.
func (r *moduleReader) account() []rules.Match {
	r.unknown, r.state = true, xt.StateOfAccount(r.valueOf("--nfacct-name", ""))
	return nil
}

// rate parses the match rateest, which compares a rate that the target RATEEST measures.
func (r *moduleReader) rate() []rules.Match {
	r.unknown, r.state = true, xt.StateOfRates
	return nil
}

// statistic parses the match statistic. A probability of 0 or 1, or every packet, does not vary.
func (r *moduleReader) statistic() []rules.Match {
	r.unknown = true
	probability, err := strconv.ParseFloat(r.valueOf("--probability", "0.5"), 64)
	every, notNumber := strconv.ParseUint(r.valueOf("--every", "2"), 0, 32)
	const least = 1.0 / (1 << 31) // the unit in which the kernel has a probability
	if err != nil || probability < least || probability > 1-least || notNumber != nil || every < 2 {
		r.effect = rules.Reads
	}
	return nil
}

// listed parses the match set, which the model represents without the counters of elements.
func (r *moduleReader) listed() []rules.Match {
	o := r.option("--match-set")
	if o == nil {
		o = r.option("--set")
	}
	if o == nil {
		r.fail(r.at, "--match-set after it")
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
		m.Destination = m.Destination || part == "dst"
	}
	m.More = len(parts) > 1
	for _, other := range r.options {
		switch other.name {
		case "--match-set", "--set", "--update-counters", "--update-subcounters":
		case "--return-nomatch":
			m.Parts += " " + other.name
		default:
			r.unknown, r.state = true, xt.StateOfSets
		}
	}
	return []rules.Match{m}
}

// label parses the match connlabel, which with --set labels the connection.
func (r *moduleReader) label() []rules.Match {
	r.unknown, r.state = true, xt.StateOfLabels
	if r.option("--set") != nil {
		r.effect = rules.ReadsAndWrites
	}
	return nil
}

// sctp parses the match sctp, of which the model represents the ports.
func (r *moduleReader) sctp() []rules.Match {
	r.unknown = r.option("--chunk-types") != nil
	return r.portsOf(rules.SCTP)
}

// dccp parses the match dccp, of which the model represents the ports.
func (r *moduleReader) dccp() []rules.Match {
	r.unknown = r.option("--dccp-types") != nil || r.option("--dccp-option") != nil
	return r.portsOf(rules.DCCP)
}

// changesSet parses the target SET. The effect of --map-set depends on the set.
func (r *moduleReader) changesSet() rules.Action {
	r.unknown, r.state = true, xt.StateOfSets
	if r.option("--map-set") == nil {
		r.effect = rules.Writes
	}
	return nil
}

// measures parses the target RATEEST.
func (r *moduleReader) measures() rules.Action {
	r.unknown, r.effect, r.state = true, rules.Writes, xt.StateOfRates
	return nil
}
