package save

import (
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// targetSet parses the target SET. With --map-set, the effect remains AnyEffect, because the
// element of the set determines mark, priority and queue of the packet.
func (r *moduleReader) targetSet() rules.Action {
	r.isUnknown, r.state = true, xt.StateOfSets
	if r.option("--map-set") == nil {
		r.effect = rules.Writes
	}
	return nil
}

// targetRateest parses the target RATEEST, which measures a rate.
func (r *moduleReader) targetRateest() rules.Action {
	r.isUnknown, r.effect, r.state = true, rules.Writes, xt.StateOfRates
	return nil
}
