package kerneltest_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
)

// number returns the number in the environment variable, or the default.
func number(t *testing.T, name string, normally uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return normally
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// seed returns SLUICE_SEED, or a seed of the day.
func seed(t *testing.T) uint64 {
	t.Helper()
	return number(t, "SLUICE_SEED", uint64(time.Now().Unix()/86400)*1e6)
}

func pairs(t *testing.T) uint64 {
	t.Helper()
	normally := uint64(1000)
	if os.Getenv("SLUICE_LONG") == "1" {
		normally = 20000
	}
	return number(t, "SLUICE_PAIRS", normally)
}

const packetsOfRuleset = 32

// mostUndecided is the percentage of pairs of generated rulesets of iptables that may be undecided.
const mostUndecided = 5

// TestModelPredictsKernel draws rulesets and packets and compares the fate that the model gives each
// packet with what the kernel does.
func TestModelPredictsKernel(t *testing.T) {
	var (
		first, want = seed(t), pairs(t)
		mu          sync.Mutex
		total       kerneltest.Tally
		next        atomic.Uint64
		shrunk      atomic.Int64
		group       sync.WaitGroup
	)
	begin := time.Now()
	for range workers() {
		n := network(t)
		group.Go(func() {
			for {
				mu.Lock()
				done := uint64(total.Pairs()) >= want
				mu.Unlock()
				if done {
					return
				}
				tally, err := n.Trial(first+next.Add(1)-1, packetsOfRuleset)
				if err != nil {
					t.Error(err)
					return
				}
				if len(tally.Failures) > 0 &&
					shrunk.Add(1) <= int64(number(t, "SLUICE_FAILURES", 3)) {
					small, err := n.Shrink(tally.Failures[0])
					if errors.Is(err, kerneltest.ErrNotRepeated) {
						t.Logf("%v\n%s", err, small)
						tally.Failures = tally.Failures[1:]
					} else {
						disagree(t, "%v\n%s", err, small)
					}
				}
				mu.Lock()
				total.Add(tally)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("SLUICE_SEED=%d: %s%.0f pairs/s", first, &total,
		float64(total.Pairs())/time.Since(begin).Seconds())
	if len(total.Failures) > 0 {
		disagree(t, "%d pairs differ", len(total.Failures))
	}
	if share := total.IPTables(); share.Percent() > mostUndecided {
		disagree(t, "%.1f %% of the pairs of iptables are undecided, more than %d %%",
			share.Percent(), mostUndecided)
	}
}

// TestDecisionsHoldInKernel draws two rulesets, decides whether they treat all packets alike, and
// sends the witnesses of the decision and other packets through both.
func TestDecisionsHoldInKernel(t *testing.T) {
	var (
		first, want = seed(t), pairs(t) / 10
		mu          sync.Mutex
		total       kerneltest.PairTally
		next        atomic.Uint64
		shown       atomic.Int64
		group       sync.WaitGroup
	)
	begin := time.Now()
	for range workers() {
		n := network(t)
		group.Go(func() {
			for {
				mu.Lock()
				done := uint64(total.Attacks+total.Explained+len(total.Failures)) >= want
				mu.Unlock()
				if done {
					return
				}
				tally, err := n.PairTrial(first+next.Add(1)-1, packetsOfRuleset)
				if err != nil {
					t.Error(err)
					return
				}
				if len(tally.Failures) > 0 &&
					shown.Add(1) <= int64(number(t, "SLUICE_FAILURES", 3)) {
					small, err := n.ShrinkPair(tally.Failures[0])
					disagree(t, "%v\n%s", err, small)
				}
				mu.Lock()
				total.Add(tally)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("SLUICE_SEED=%d: %s%.0f packets/s", first, &total,
		float64(total.Attacks+total.Explained)/time.Since(begin).Seconds())
	if len(total.Failures) > 0 {
		disagree(t, "%d decisions are wrong", len(total.Failures))
	}
}

// workers is how many networks are used at a time: they wait for the kernel as long as they work.
func workers() int { return 2 * min(runtime.NumCPU(), 4) }
