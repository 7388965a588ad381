package kerneltest_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
)

// number returns the number in the environment variable, or fallback if the variable is empty.
func number(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// seed returns SLUICE_SEED, or a seed that depends on the date.
func seed(t *testing.T) uint64 {
	t.Helper()
	return number(t, "SLUICE_SEED", uint64(time.Now().Unix()/86400)*1e6)
}

// pairs returns the number of pairs of a ruleset and a packet that TestModelPredictsKernel
// compares. The other tests derive their numbers of packets from it.
func pairs(t *testing.T) uint64 {
	t.Helper()
	fallback := uint64(1000)
	if os.Getenv("SLUICE_LONG") == "1" {
		fallback = 20000
	}
	return number(t, "SLUICE_PAIRS", fallback)
}

const packetsOfRuleset = 32

// maxUndecided is the maximum percentage of undecided pairs of generated iptables rulesets. It is
// verified only for at least manyPairs pairs, because fewer pairs come from too few rulesets.
const (
	maxUndecided = 5
	manyPairs    = 5000
)

// TestModelPredictsKernel compares, for random rulesets and packets, the model's outcome of each
// packet with the kernel's.
func TestModelPredictsKernel(t *testing.T) {
	first, want, begin := seed(t), pairs(t), time.Now()
	var total kerneltest.Counts
	enough := func() bool { return uint64(total.Pairs()) >= want }
	runTrials(t, first, &total, enough, func(
		n *kerneltest.Network, seed uint64, shouldShrink func() bool,
	) (kerneltest.Counts, error) {
		counts, err := n.Trial(seed, packetsOfRuleset)
		if err == nil && len(counts.Failures) > 0 && shouldShrink() {
			small, err := n.Shrink(counts.Failures[0])
			if errors.Is(err, kerneltest.ErrNotRepeated) {
				t.Log(describeFailure(small, err))
				counts.Failures = counts.Failures[1:]
			} else {
				t.Error(describeFailure(small, err))
			}
		}
		return counts, err
	})
	t.Logf("SLUICE_SEED=%d: %s%.0f pairs/s", first, &total,
		float64(total.Pairs())/time.Since(begin).Seconds())
	if len(total.Failures) > 0 {
		t.Errorf("%d predictions differ from the kernel, want none", len(total.Failures))
	}
	if share := total.IPTables(); share.Pairs >= manyPairs && share.Percent() > maxUndecided {
		t.Errorf("%.1f %% of the pairs with rulesets of iptables are undecided, want at most %d %%",
			share.Percent(), maxUndecided)
	}
}

// describeFailure returns the text of a failure, and the error of shrinking it if there is one.
func describeFailure(f fmt.Stringer, shrinkErr error) string {
	if shrinkErr != nil {
		return fmt.Sprintf("shrink the failure: %v\n%s", shrinkErr, f)
	}
	return f.String()
}

// TestDecisionsHoldInKernel decides whether the rulesets of random pairs are equivalent, and
// verifies that the kernel does not contradict the decisions. It sends the witnesses of a decision
// and other packets through both rulesets.
func TestDecisionsHoldInKernel(t *testing.T) {
	first, want, begin := seed(t), pairs(t)/10, time.Now()
	var total kerneltest.PairCounts
	enough := func() bool {
		return uint64(total.Alike+total.Explained+len(total.Failures)) >= want
	}
	runTrials(t, first, &total, enough, func(
		n *kerneltest.Network, seed uint64, shouldShrink func() bool,
	) (kerneltest.PairCounts, error) {
		counts, err := n.PairTrial(seed, packetsOfRuleset)
		if err == nil && len(counts.Failures) > 0 && shouldShrink() {
			small, err := n.ShrinkPair(counts.Failures[0])
			t.Error(describeFailure(small, err))
		}
		return counts, err
	})
	t.Logf("SLUICE_SEED=%d: %s%.0f packets/s", first, &total,
		float64(total.Alike+total.Explained)/time.Since(begin).Seconds())
	if len(total.Failures) > 0 {
		t.Errorf("the kernel contradicts decisions for %d packets, want none", len(total.Failures))
	}
}

// runTrials runs trials with ascending seeds in parallel until enough returns true, and adds their
// results to the total. A trial calls shouldShrink to learn whether it should shrink a failure.
// Only the first SLUICE_FAILURES calls return true, by default 3.
func runTrials[T any](
	t *testing.T, first uint64, total interface{ Add(T) }, enough func() bool,
	trial func(n *kerneltest.Network, seed uint64, shouldShrink func() bool) (T, error),
) {
	var (
		mu     sync.Mutex // of total
		next   atomic.Uint64
		shrunk atomic.Int64
		group  sync.WaitGroup
	)
	maxShrunk := int64(number(t, "SLUICE_FAILURES", 3))
	shouldShrink := func() bool { return shrunk.Add(1) <= maxShrunk }
	for range workers() {
		n := network(t)
		group.Go(func() {
			for {
				mu.Lock()
				done := enough()
				mu.Unlock()
				if done {
					return
				}
				counts, err := trial(n, first+next.Add(1)-1, shouldShrink)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				total.Add(counts)
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

// workers returns the number of networks used at a time. They mostly wait for the kernel.
func workers() int { return 2 * min(runtime.NumCPU(), 4) }
