package nft

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// alternatives contains the examples that a process in the role "apply alternately" applies. They
// differ in chains, sets and routes.
var alternatives = []string{"tproxy-dual", "exclusions-dual"}

// TestAKilledProcessLeavesACompleteRuleset kills a process that calls Apply, at a random moment.
// Every second repetition starts with an empty namespace.
func TestAKilledProcessLeavesACompleteRuleset(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	found := map[string]int{}
	for i := range repetitions(30, 300) {
		p := startProcess(t, ns, nil, "apply alternately")
		if i%2 == 0 {
			p.readLine(t) // the process is about to call Apply
		} else {
			for range 1 + random.IntN(4) {
				p.readLine(t)
			}
		}
		// An Apply takes about 1 ms. Spin instead of sleeping, which is not precise enough.
		for begin, wait := time.Now(),
			time.Duration(random.IntN(3_000))*time.Microsecond; time.Since(begin) < wait; {
			continue
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
		state := completeAlternative(t, ns)
		checkRouting(t, ns, state)
		found[state]++

		// The next Apply repairs an incomplete state, such as routes without rules.
		mustApply(t, ns, example(alternatives[0]), Created, Replaced, Unchanged)
		checkRuleset(t, ns, example(alternatives[0]))
		if i%2 == 1 {
			if _, err := Remove(ns); err != nil {
				t.Fatal(err)
			}
			checkEmpty(t, ns)
		}
	}
	t.Log(found)
	if long && len(found) < 2 {
		t.Errorf("all processes were killed in the state %v, want at least two states", found)
	}
}

// applyAlternately applies the alternatives alternately and prints a line before each Apply.
func applyAlternately(ns *netns.NS, _ *bufio.Reader, _ []string) error {
	for i := 0; ; i++ {
		if _, err := fmt.Println("next"); err != nil {
			return err
		}
		if _, err := Apply(ns, example(alternatives[i%2])); err != nil {
			return err
		}
	}
}

// completeAlternative returns the name of the alternative whose rules the namespace has, or
// "nothing" if there is no table. It ignores the gate and the routes. It fails the test if the
// namespace has other rules.
func completeAlternative(t *testing.T, ns *netns.NS) string {
	t.Helper()
	got, err := whileBusy(func() (rules.Ruleset, error) { return Read(ns) })
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tables) == 0 {
		return "nothing"
	}
	if table := &got.Tables[0]; hasGate(table) {
		table.Chains = slices.DeleteFunc(table.Chains, func(c rules.Chain) bool {
			return c.Base != nil && c.Base.Priority == gatePriority
		})
	}
	for _, name := range alternatives {
		if sameTables(example(name), got) {
			return name
		}
	}
	t.Fatalf("want the rules of one of %v, got\n%s", alternatives, got)
	return ""
}

// checkRouting checks that the namespace has the routing of the alternative. The namespace may also
// have the routing of the other alternative.
func checkRouting(t *testing.T, ns *netns.NS, name string) {
	t.Helper()
	if name == "nothing" {
		return
	}
	want := rules.Ruleset{Routing: example(name).Routing}
	for _, d := range rules.Compare(want, rules.Ruleset{Routing: routes(t, ns)}) {
		if d.Kind == rules.Missing {
			t.Errorf("the rules of %s lack their routing: %s", name, d)
		}
	}
}
