package nft

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// withoutLock is printed after the outcome of an Apply that did not get the lock before the
// timeout.
const withoutLock = " without the lock"

// applyWithLock is like Apply, and reports whether Apply had the lock if it changed the namespace.
// Without the lock, for example on a busy machine, concurrent calls may leave the rules of one
// ruleset and the routes of the other.
func applyWithLock(ns *netns.NS, rs rules.Ruleset) (result Result, locked bool, err error) {
	p, err := Prepare(rs)
	if err != nil {
		return Result{}, false, err
	}
	locked = true
	result, err = p.Apply(ns, ApplyOptions{BeforeChange: func(exclusive bool) error {
		locked = exclusive
		return nil
	}})
	return result, locked, err
}

// TestTwoProcessesInstallConcurrently begins each round in an empty namespace. It checks the
// ruleset of a round in which both processes had the lock.
func TestTwoProcessesInstallConcurrently(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	names := []string{"exclusions-dual", "tproxy-dual"}
	appliers := []*process{
		startProcess(t, ns, nil, "apply the named examples"),
		startProcess(t, ns, nil, "apply the named examples"),
	}
	outcomes, checked := map[string]int{}, 0
	for range repetitions(50, 1000) {
		locked := true
		for i, p := range appliers {
			p.writeLine(t, names[i])
		}
		for _, p := range appliers {
			outcome := p.readLine(t)
			if strings.HasPrefix(outcome, "error") {
				t.Fatal(outcome)
			}
			locked = locked && !strings.HasSuffix(outcome, withoutLock)
			outcomes[outcome]++
		}
		if locked {
			checkOneOf(t, ns, names...)
			checked++
		}
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
		checkEmpty(t, ns)
	}
	t.Log(outcomes)
	if outcomes[string(Created)] == 0 || checked == 0 {
		t.Errorf("outcomes %v, %d rulesets were checked; want at least one outcome %q and one checked ruleset",
			outcomes, checked, Created)
	}
}

// applyNamedExamples applies the examples whose names it reads, and prints the outcomes.
func applyNamedExamples(ns *netns.NS, stdin *bufio.Reader, _ []string) error {
	for {
		name, err := stdin.ReadString('\n')
		if err != nil {
			return nil // the end of the input
		}
		result, locked, err := applyWithLock(ns, example(strings.TrimSpace(name)))
		switch {
		case err != nil:
			fmt.Printf("error: %v\n", err)
		case !locked:
			fmt.Println(string(result.Outcome) + withoutLock)
		default:
			fmt.Println(result.Outcome)
		}
	}
}

// TestConcurrentInstallersOfAllExamples has each installer apply every example, first in an empty
// namespace, then over the results of the other installers.
func TestConcurrentInstallersOfAllExamples(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	var names []string
	for _, e := range examples {
		names = append(names, e.name)
	}
	checked := 0
	for round := 0; round < repetitions(1, 50) || checked == 0 && round < 20; round++ {
		var unlocked atomic.Bool
		// On a busy machine an Apply may wait too long for the lock. Further rounds have fewer
		// installers until a round is checked.
		installers := len(examples)
		if checked == 0 {
			installers = max(2, len(examples)-round)
		}
		runConcurrently(t, installers, func(i int) error {
			for j := range examples {
				_, locked, err := applyWithLock(ns, example(names[(i+j)%len(names)]))
				if err != nil || !locked {
					unlocked.Store(true)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if !unlocked.Load() {
			checkOneOf(t, ns, names...)
			checked++
		}
		if _, err := Remove(ns); err != nil {
			t.Fatal(err)
		}
		checkEmpty(t, ns)
	}
	if checked == 0 {
		t.Fatal("no ruleset was checked, because in each round an Apply waited too long for the lock")
	}
}

// TestConcurrentUpdatesOfOneSet covers updates by calls that do not hold the lock, as after the
// timeout of the lock. The kernel must reject a transaction if the set has changed since the read.
func TestConcurrentUpdatesOfOneSet(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	mustApply(t, ns, manyPrefixes(0, 50), Created)
	for range repetitions(20, 500) {
		runConcurrently(t, 4, func(i int) error {
			return ns.Do(func() error {
				c, err := dial()
				if err != nil {
					return err
				}
				defer c.close()
				return newApplier(c, mustPrepare(t, manyPrefixes(i, 50)), ApplyOptions{}).apply(step{})
			})
		})
		got, err := Read(ns)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc([]int{0, 1, 2, 3}, func(i int) bool {
			return sameTables(manyPrefixes(i, 50), got)
		}) {
			t.Fatalf("the ruleset equals none of the applied ones:\n%s", got)
		}
	}
}

// TestConcurrentInstallersAndRemovers checks that one complete ruleset or no ruleset remains.
func TestConcurrentInstallersAndRemovers(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	names := []string{"tproxy-dual", "exclusions-dual"}
	for range repetitions(10, 100) {
		locked := runConcurrently(t, 4, func(i int) error {
			for range 3 {
				if i%2 == 0 {
					if _, err := Apply(ns, example(names[i/2])); err != nil {
						return err
					}
				} else if _, err := Remove(ns); err != nil {
					return err
				}
				if _, err := Read(ns); err != nil {
					return err
				}
			}
			return nil
		})
		got, err := Read(ns)
		if err != nil {
			t.Fatal(err)
		}
		if locked && len(got.Tables) > 0 {
			want := [2]rules.Ruleset{example(names[0]), example(names[1])}
			if !rules.Equal(want[0], got) && !rules.Equal(want[1], got) {
				t.Fatalf("the namespace has neither ruleset:\n%s", got)
			}
		}
	}
}

// TestContinuousForeignChanges covers continuous changes of another table, which change the
// generation of the ruleset.
func TestContinuousForeignChanges(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	stop := writeWithoutPause(t, ns)
	defer stop()
	for range repetitions(2, 100) {
		mustApply(t, ns, manyPrefixes(0, 3), Created)
		mustApply(t, ns, manyPrefixes(0, 3), Unchanged)
		mustApply(t, ns, manyPrefixes(1, 3), Updated, Replaced)
		mustApply(t, ns, example("tproxy-dual"), Replaced)
		checkRuleset(t, ns, example("tproxy-dual"))
		removed, err := whileBusy(func() (bool, error) { return Remove(ns) })
		if err != nil || !removed {
			t.Fatalf("removed %t, error %v, want true without an error", removed, err)
		}
	}
}

// TestForeignChangesOfALongTable checks that a pod cannot block a reader by continuous changes:
// Read succeeds or returns errBusy.
func TestForeignChangesOfALongTable(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	load(t, ns, "table inet sluice { chain c { "+
		strings.Repeat("ip daddr 10.0.0.1 counter accept; ", 500)+"}; }")
	stop := writeWithoutPause(t, ns)
	defer stop()
	if _, err := Read(ns); err != nil && !errors.Is(err, errBusy) {
		t.Errorf("Read: %v, want no error or errBusy", err)
	}
}

func TestSixtyFourNamespacesConcurrently(t *testing.T) {
	t.Parallel()
	namespaces := make([]*netns.NS, 64)
	for i := range namespaces {
		namespaces[i] = netnstest.New(t)
	}
	runConcurrently(t, len(namespaces), func(i int) error {
		for j := range repetitions(2, 20) {
			// Use a different ruleset in each namespace to detect mix-ups.
			want := manyPrefixes(i, 2+j)
			if _, err := Apply(namespaces[i], want); err != nil {
				return err
			}
			got, err := Read(namespaces[i])
			if err != nil {
				return err
			}
			if diffs := rules.Compare(want, got); len(diffs) > 0 {
				return fmt.Errorf("namespace %d does not have its ruleset:\n%s", i, listing(diffs))
			}
		}
		return nil
	})
}

// runConcurrently calls do in n goroutines, which start together. locked reports whether all calls
// ended within the timeout of the lock. If so, no call has continued without the lock. A call may
// return errBusy, because the other calls may change the ruleset during every attempt to read it. A
// call without the lock may also give up, because the other calls may change the ruleset before
// each of its transactions.
func runConcurrently(t *testing.T, n int, do func(i int) error) (locked bool) {
	t.Helper()
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	errs := make([]error, n)
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-begin
			errs[i] = do(i)
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	locked = time.Since(start) < netns.LockTimeout
	for _, err := range errs {
		if err != nil && !errors.Is(err, errBusy) && (locked || !needsRetry(err)) {
			t.Fatal(err)
		}
	}
	return locked
}

// checkOneOf checks that the namespace has exactly one of the examples, with its routing.
func checkOneOf(t *testing.T, ns *netns.NS, names ...string) {
	t.Helper()
	got, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if rules.Equal(example(name), got) {
			return
		}
	}
	for _, name := range names {
		t.Logf("not %s:\n%s", name, listing(rules.Compare(example(name), got)))
	}
	t.Fatal("the namespace contains none of the rulesets")
}
