package save

import (
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file parses matches that depend on earlier packets or on random numbers. The model does not
// represent these matches.

// limitText returns the text of the match limit.
func (r *moduleReader) limitText() (text string, ok bool) {
	average, ok := limitRate(r.optionValue("--limit", "3/hour"))
	burst, isNumber := number(r.optionValue("--limit-burst", "5"), 32)
	l := xt.Limit{Average: average, Burst: uint32(burst)}
	text = l.String()
	if r.isNFT {
		text = l.ExpressionText()
	}
	return text, ok && isNumber && r.onlyNegates()
}

// limitRate parses a rate such as "3/hour" and returns the time between two packets, in units of
// 100 µs (parse_rate in extensions/libxt_limit.c of iptables). The unit may be abbreviated, and is
// a second if it is missing.
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

// statisticText returns the text of the match statistic. The match may have different results for
// equal packets, unless it matches every packet or no packet.
func (r *moduleReader) statisticText() (text string, ok bool) {
	r.effect = rules.Reads
	var s xt.Statistic
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
	if ok && s.Varies() {
		r.effect = rules.ReadsVarying
	}
	return s.String(), ok
}

// recentText returns the text of the match recent, which uses a named list of addresses. --set adds
// the packet's address and matches every packet or, if it is negated, no packet (recent_mt in
// net/netfilter/xt_recent.c).
func (r *moduleReader) recentText() (text string, ok bool) {
	m, ok := r.recent()
	r.state = xt.StateOfRecent(r.optionValue("--name", "DEFAULT"))
	set := r.option("--set")
	switch {
	case set != nil && !set.not:
		r.effect = rules.Writes
	case set != nil || r.option("--update") != nil || r.option("--remove") != nil ||
		r.option("--reap") != nil:
		r.effect = rules.ReadsAndWrites
	}
	return m.String(), ok
}

// matchNFAcct parses the match nfacct, which counts packets in a named object. It matches every
// packet or, if the object has a quota, every packet once the quota is used up.
func (r *moduleReader) matchNFAcct() []rules.Match {
	r.isUnknown, r.state = true, xt.StateOfAccount(r.optionValue("--nfacct-name", ""))
	return nil
}

// matchRateest parses the match rateest, which compares rates that the target RATEEST measures.
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
