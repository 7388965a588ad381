package kerneltest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
)

// TestModelPredictsTracedPaths compares, for random rulesets and packets, the rules that each
// traced packet matched in the kernel, in order, with the prediction of the model. The command
// "rules trace" makes the same comparison.
func TestModelPredictsTracedPaths(t *testing.T) {
	first, want, begin := seed(t), pairs(t)/5, time.Now()
	var total kerneltest.PathCounts
	enough := func() bool { return uint64(total.Traced()) >= want }
	runTrials(t, first, &total, enough, func(
		n *kerneltest.Network, seed uint64, shouldShrink func() bool,
	) (kerneltest.PathCounts, error) {
		counts, err := n.PathTrial(seed, packetsOfRuleset)
		for err == nil && len(counts.Failures) > 0 && shouldShrink() {
			small, err := n.ShrinkPath(counts.Failures[0])
			if !errors.Is(err, kerneltest.ErrNotRepeated) {
				t.Error(describeFailure(small, err))
				break
			}
			t.Log(describeFailure(small, err))
			counts.Failures = counts.Failures[1:]
		}
		return counts, err
	})
	t.Logf("SLUICE_SEED=%d: %s; %.0f packets/s", first, &total,
		float64(total.Traced())/time.Since(begin).Seconds())
	if len(total.Failures) > 0 {
		t.Errorf("%d paths differ from the prediction, want none", len(total.Failures))
	}
}
