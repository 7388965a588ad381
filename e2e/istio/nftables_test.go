package istio_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A differenceCounter counts the configurations with each finding and each rejection.
type differenceCounter struct {
	mu       sync.Mutex
	compared int
	seen     map[string]*occurrence // by id of the finding or rejection
}

// An occurrence counts the configurations with a finding or a rejection, and contains the first one
// in alphabetical order.
type occurrence struct {
	configurations int
	first          string     // name of the first configuration
	class          diff.Class // packets that differ in the first configuration
}

func newDifferenceCounter() *differenceCounter {
	return &differenceCounter{seen: map[string]*occurrence{}}
}

// count counts a compared configuration.
func (n *differenceCounter) count() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.compared++
}

// add counts a configuration with a finding or a rejection. c is empty for a rejection.
func (n *differenceCounter) add(id, name string, c diff.Class) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[id] == nil {
		n.seen[id] = &occurrence{}
	}
	s := n.seen[id]
	if s.configurations++; s.first == "" || name < s.first {
		s.first, s.class = name, c
	}
}

// print prints the rejections, and the findings with a witness each.
func (n *differenceCounter) print() {
	fmt.Printf("istio-nftables compared with istio-iptables, in %d configurations:\n", n.compared)
	for _, r := range nativeRefusals {
		if s := n.seen[r.id]; s != nil {
			fmt.Printf("%s: %s: %d configurations, such as %s\n", r.id, r.description,
				s.configurations, s.first)
		}
	}
	for _, f := range append(slices.Clone(findings), dryRun) {
		if s := n.seen[f.id]; s != nil {
			fmt.Printf("%s: %s: %d configurations, such as %s\n%s", f.id, f.description,
				s.configurations, s.first,
				describeClass(s.class, "istio-nftables", "istio-iptables"))
		}
	}
}

// checkNative compares istio-iptables' rules with --native-nftables and with legacy iptables. The
// differences must be exactly the expected findings.
func (n *differenceCounter) checkNative(t *testing.T, s testCase, legacy rules.Ruleset) {
	t.Helper()
	native, ok := n.startNative(t, s)
	if !ok {
		return
	}
	n.count()
	compare := func(except string) diff.Result {
		left := diff.Side{Ruleset: s.repaired(native, except), RoutingKnown: true}
		return diff.Decide(left, diff.Side{Ruleset: legacy, RoutingKnown: true},
			diff.Options{MaxClasses: 3})
	}
	if r := compare(""); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("%s\nistio-nftables and istio-iptables differ after all known repairs:\n%s", s,
			describe(r, "istio-nftables", "istio-iptables"))
		return
	}
	allRepaired := s.repaired(native, "")
	for _, f := range findings {
		var r diff.Result
		if !rules.Equal(allRepaired, s.repaired(native, f.id)) {
			r = compare(f.id)
		}
		found := r.StrictVerdict() == diff.Different
		if want := f.expected(s.redirect); found != want {
			t.Errorf("%s\nfinding %s: %t, want %t (%s)\n%s", s, f.id, found, want, f.description,
				describe(r, "istio-nftables", "istio-iptables"))
		}
		if found {
			n.add(f.id, s.Name, r.Classes[0])
		}
	}
}

// startNative runs istio-nftables and reads its rules. It checks that istio-nftables rejects the
// configuration exactly as expected, and rewrites the rejected arguments for the next run. It
// returns false if there is no such rewrite, or if the last run fails.
func (n *differenceCounter) startNative(t *testing.T, s testCase) (rules.Ruleset, bool) {
	t.Helper()
	c := s.Configuration
	expected := slices.DeleteFunc(slices.Clone(nativeRefusals), func(r nativeRefusal) bool {
		return !r.expected(s)
	})
	for i, r := range expected {
		_, result := start(t, c, byNative)
		// nft reports only its first errors, so the error may belong to any expected kind.
		isExpected := slices.ContainsFunc(expected[i:], func(r nativeRefusal) bool {
			return r.isIn(result.Output)
		})
		if result.Status == 0 || !isExpected {
			t.Errorf("%s\nistio-nftables: exit status %d, want a rejection: %s\n%s", s,
				result.Status, r.description,
				lastLines(result.Output, 8))
		}
		n.add(r.id, s.Name, diff.Class{})
		if r.rewrite == nil {
			return rules.Ruleset{}, false
		}
		c.Args = rewriteArgs(c.Args, r.rewrite)
	}
	ns, result := start(t, c, byNative)
	if result.Status != 0 {
		t.Errorf("%s\nistio-nftables: exit status %d, want 0\n%s", c, result.Status,
			lastLines(result.Output+result.Errors, 8))
		return rules.Ruleset{}, false
	}
	return readLive(t, ns), true
}
