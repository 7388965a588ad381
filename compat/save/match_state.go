package save

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file contains matches and targets that depend on the state of earlier packets, or change
// such state.

// recent parses the match recent, which uses a named list of addresses. --set adds the packet's
// address and always matches (recent_mt in net/netfilter/xt_recent.c).
func (r *moduleReader) recent() []rules.Match {
	r.isUnknown = true
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

// valueOf returns the value of an option, or the default value if the option was not given.
func (r *moduleReader) valueOf(name, defaultValue string) string {
	if o := r.option(name); o != nil {
		return o.values[0].text
	}
	return defaultValue
}

// hashLimit parses the match hashlimit. Rules with the same name share their counters.
func (r *moduleReader) hashLimit() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfHashLimit(r.valueOf("--hashlimit-name", ""))
	return nil
}

// account parses the match nfacct. The match counts packets in a named object. It matches unless
// the object has a quota that is not used up.
func (r *moduleReader) account() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfAccount(r.valueOf("--nfacct-name", ""))
	return nil
}

// rate parses the match rateest, which compares a rate that the target RATEEST measures.
func (r *moduleReader) rate() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfRates
	return nil
}

// limit parses the match limit.
func (r *moduleReader) limit() []rules.Match {
	r.isUnknown = true
	average, ok := limitRate(r.valueOf("--limit", "3/hour"))
	burst, isNumber := number(r.valueOf("--limit-burst", "5"), 32)
	if negated := slices.ContainsFunc(r.options, func(o option) bool { return o.not }); ok &&
		isNumber && !negated {
		l := xt.Limit{Average: average, Burst: uint32(burst)}
		r.text = l.String()
		if r.isNFT {
			r.text = l.ExpressionText()
		}
	}
	return nil
}

// limitRate parses a rate such as "3/hour" and returns the time between two packets, in units of
// 100 µs (parse_rate in extensions/libxt_limit.c of iptables). The unit may be abbreviated.
func limitRate(text string) (average uint32, ok bool) {
	rate, unit, hasUnit := strings.Cut(text, "/")
	n, err := strconv.ParseUint(rate, 10, 31)
	if err != nil || n == 0 || hasUnit && unit == "" {
		return 0, false
	}
	for _, u := range [...]struct {
		name   string
		length uint64
	}{{"second", 10000}, {"minute", 600000}, {"hour", 36000000}, {"day", 864000000}} {
		if strings.HasPrefix(u.name, strings.ToLower(unit)) {
			return uint32(u.length / n), u.length >= n
		}
	}
	return 0, false
}

// statistic parses the match statistic. The result varies between equal packets, unless the
// probability is 0 or 1, or every packet matches.
func (r *moduleReader) statistic() []rules.Match {
	r.isUnknown, r.effect = true, rules.Reads
	var s xt.Statistic
	ok := false
	switch probability, every := r.option("--probability"), r.option("--every"); {
	case r.valueOf("--mode", "") == "random" && probability != nil && every == nil:
		p, err := strconv.ParseFloat(probability.values[0].text, 64)
		if ok = err == nil && p >= 0 && p <= 1; ok {
			s = xt.NewProbability(probability.not, p)
		}
	case r.valueOf("--mode", "") == "nth" && every != nil && probability == nil:
		n, isNumber := number(every.values[0].text, 32)
		first, isPacket := number(r.valueOf("--packet", "0"), 32)
		ok = isNumber && isPacket && n > 0
		s = xt.Statistic{Not: every.not, Nth: true, Every: uint32(n), Packet: uint32(first)}
	}
	if ok {
		r.text = s.String()
		if s.Varies() {
			r.effect = rules.ReadsVarying
		}
	}
	return nil
}

// ipset parses the match set. The model does not represent conditions on the counters of elements.
func (r *moduleReader) ipset() []rules.Match {
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
		m.Destination = m.Destination || part == "dst"
	}
	m.More = len(parts) > 1
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

// label parses the match connlabel, which with --set labels the connection.
func (r *moduleReader) label() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfLabels
	if r.option("--set") != nil {
		r.effect = rules.ReadsAndWrites
	}
	return nil
}

// sctp parses the match sctp. The model represents only the ports.
func (r *moduleReader) sctp() []rules.Match {
	r.isUnknown = r.option("--chunk-types") != nil
	return r.portsOf(rules.SCTP)
}

// dccp parses the match dccp. The model represents only the ports.
func (r *moduleReader) dccp() []rules.Match {
	r.isUnknown = r.option("--dccp-types") != nil || r.option("--dccp-option") != nil
	return r.portsOf(rules.DCCP)
}

// changeSet parses the target SET. The effect of --map-set on the packet depends on the set.
func (r *moduleReader) changeSet() rules.Action {
	r.isUnknown, r.state = true, xt.StateOfSets
	if r.option("--map-set") == nil {
		r.effect = rules.Writes
	}
	return nil
}

// rateEstimator parses the target RATEEST, which measures a rate.
func (r *moduleReader) rateEstimator() rules.Action {
	r.isUnknown, r.effect, r.state = true, rules.Writes, xt.StateOfRates
	return nil
}
