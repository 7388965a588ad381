package save

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses matches that depend on earlier packets or on chance. The model does not
// represent these matches.

// matchLimit parses the match limit.
func (r *moduleReader) matchLimit() []rules.Match {
	r.isUnknown = true
	average, ok := limitRate(r.optionValue("--limit", "3/hour"))
	burst, isNumber := number(r.optionValue("--limit-burst", "5"), 32)
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

// matchStatistic parses the match statistic. Its result differs between equal packets, unless the
// match matches every packet or no packet.
func (r *moduleReader) matchStatistic() []rules.Match {
	r.isUnknown, r.effect = true, rules.Reads
	var s xt.Statistic
	ok := false
	switch probability, every := r.option("--probability"), r.option("--every"); {
	case r.optionValue("--mode", "") == "random" && probability != nil && every == nil:
		p, err := strconv.ParseFloat(probability.values[0].text, 64)
		if ok = err == nil && p >= 0 && p <= 1; ok {
			s = xt.NewProbability(probability.not, p)
		}
	case r.optionValue("--mode", "") == "nth" && every != nil && probability == nil:
		n, isNumber := number(every.values[0].text, 32)
		first, isPacket := number(r.optionValue("--packet", "0"), 32)
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

// matchRecent parses the match recent, which uses a named list of addresses. --set adds the
// packet's address and always matches (recent_mt in net/netfilter/xt_recent.c).
func (r *moduleReader) matchRecent() []rules.Match {
	text, ok := r.recentText()
	r.setText(ok, text)
	r.state = xt.StateOfRecent(r.optionValue("--name", "DEFAULT"))
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

// matchNFAcct parses the match nfacct, which counts packets in a named object. If the object has a
// quota, only packets after the quota is used up match. Otherwise all packets match.
func (r *moduleReader) matchNFAcct() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfAccount(r.optionValue("--nfacct-name", ""))
	return nil
}

// matchRateest parses the match rateest, which compares a rate that the target RATEEST measures.
func (r *moduleReader) matchRateest() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfRates
	return nil
}

// matchConnlabel parses the match connlabel. With --set, the match also labels the connection.
func (r *moduleReader) matchConnlabel() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfLabels
	if r.option("--set") != nil {
		r.effect = rules.ReadsAndWrites
	}
	return nil
}
