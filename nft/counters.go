package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeHits returns the values of a counter expression.
func decodeHits(a attributes) rules.Hits {
	return rules.Hits{
		Packets: a.Number64(unix.NFTA_COUNTER_PACKETS), Bytes: a.Number64(unix.NFTA_COUNTER_BYTES),
	}
}

// counterHits returns the values of the last counter in a list of expressions, or zero without a
// counter.
func counterHits(expressions attributes) rules.Hits {
	var hits rules.Hits
	expressions.Each(func(_ uint16, value []byte) {
		if e := attributes(value); e.HasText(unix.NFTA_EXPR_NAME, "counter") {
			hits = decodeHits(e.Get(unix.NFTA_EXPR_DATA))
		}
	})
	return hits
}

// hasCounters reports whether a rule of the table has a counter.
func hasCounters(t *rules.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool { return r.Counts() })
	})
}

// withHits returns the desired table with the counters of the old table: each rule with a counter
// gets the values of the equal rule in the old chain of the same name. If a chain contains several
// equal rules, they get the values in order.
func withHits(desired, old *rules.Table) *rules.Table {
	if !hasCounters(desired) || !hasCounters(old) {
		return desired
	}
	counted := *desired
	counted.Chains = slices.Clone(desired.Chains)
	for i := range counted.Chains {
		c := &counted.Chains[i]
		before := old.Chain(c.Name)
		if before == nil {
			continue
		}
		hits := map[string][]rules.Hits{}
		for j := range before.Rules {
			text := before.Rules[j].String()
			hits[text] = append(hits[text], before.Rules[j].Hits)
		}
		c.Rules = slices.Clone(c.Rules)
		for j := range c.Rules {
			text := c.Rules[j].String()
			if values := hits[text]; c.Rules[j].Counts() && len(values) > 0 {
				c.Rules[j].Hits, hits[text] = values[0], values[1:]
			}
		}
	}
	return &counted
}
