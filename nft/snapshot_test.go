package nft

import (
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// reading returns the current reading of the namespace.
func reading(t *testing.T, ns *netns.NS) Snapshot {
	t.Helper()
	r, err := ReadSince(ns, 0, rules.Routing{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFreshSnapshotIsNotReadAgain counts the requests to the kernel in addition to the
// transaction.
func TestFreshSnapshotIsNotReadAgain(t *testing.T) {
	prefixes := excluding(prefixList("10.0.0.0/24", "10.0.2.0/24")...)
	for _, row := range []struct {
		name     string
		is       rules.Ruleset
		outcome  Outcome
		requests bool
	}{
		{
			"a prefix differs", excluding(prefixList("10.0.0.0/24", "10.0.4.0/24")...), Updated,
			false,
		},
		{"rules differ", example("lists-and-groups"), Replaced, false},
		{"no difference, which may be outdated", prefixes, Unchanged, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			applied(t, ns, row.is, Created)
			var requested atomic.Int32
			c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
				if !isBatch(request) {
					requested.Add(1)
				}
				return kernel(request)
			})
			a := newApplier(c, prepared(t, prefixes), ApplyOptions{})
			a.snapshot = reading(t, ns)
			err := ns.Do(a.run)
			if got := a.outcome(err); err != nil || got.Outcome != row.outcome ||
				(requested.Load() > 0) != row.requests {
				t.Errorf("%s, %v, with %d requests", got.Outcome, err, requested.Load())
			}
			holds(t, ns, prefixes)
		})
	}
}

// TestAChangeAfterTheReadingIsSeen makes changes after which a plan from the old reading would lead
// to a wrong ruleset.
func TestAChangeAfterTheReadingIsSeen(t *testing.T) {
	before := excluding(prefixList("10.0.0.0/24", "10.0.2.0/24")...)
	want := excluding(prefixList("10.0.0.0/24", "10.0.4.0/24")...)
	for _, row := range []struct {
		name, change string
		want         rules.Ruleset
		outcome      Outcome
	}{
		{
			"an additional prefix", "add element inet sluice outbound-exclude-ipv4 { 30.0.0.0/8 }", want,
			Updated,
		},
		{
			"the prefix to delete is missing",
			"delete element inet sluice outbound-exclude-ipv4 { 10.0.2.0/24 }", want, Updated,
		},
		{"an additional rule", "add rule inet sluice nat-output drop", want, Replaced},
		{"a deleted table", "delete table inet sluice", want, Created},
		{"a foreign table", "add table ip other", want, Updated},
		{
			"a chain that was in sync is flushed", "flush chain inet sluice nat-output",
			before, Replaced,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			applied(t, ns, before, Created)
			last := reading(t, ns)
			load(t, ns, row.change)
			result, err := prepared(t, row.want).Apply(ns, ApplyOptions{Since: last})
			if err != nil || result.Outcome != row.outcome {
				t.Errorf("%s, %v, want %s", result.Outcome, err, row.outcome)
			}
			holds(t, ns, row.want)
		})
	}
}

// TestSnapshotOfAnotherNamespaceIsNotUsed uses two namespaces with the same generation.
func TestSnapshotOfAnotherNamespaceIsNotUsed(t *testing.T) {
	one, other := netnstest.New(t), netnstest.New(t)
	applied(t, one, excluding(prefixList("10.0.0.0/24", "10.0.2.0/24")...), Created)
	applied(t, other, excluding(prefixList("10.0.0.0/24", "10.0.8.0/24")...), Created)
	last := reading(t, one)
	if now := reading(t, other); now.Generation != last.Generation {
		t.Fatalf("generations %d and %d: want equal generations", last.Generation, now.Generation)
	}
	want := excluding(prefixList("10.0.0.0/24", "10.0.4.0/24")...)
	if _, err := prepared(t, want).Apply(other, ApplyOptions{Since: last}); err != nil {
		t.Error(err)
	}
	holds(t, other, want)
}

// TestUnusableSnapshotLeavesNothingBehind passes a reading that equals the desired ruleset, as if
// only the routes had to be repaired.
func TestUnusableSnapshotLeavesNothingBehind(t *testing.T) {
	want := example("sidecar-ipv4")
	for _, row := range []struct {
		change  string
		outcome Outcome
	}{{"delete table inet sluice", Created}, {"add rule inet sluice nat-output drop", Replaced}} {
		ns := netnstest.New(t)
		applied(t, ns, want, Created)
		last := reading(t, ns)
		load(t, ns, row.change)
		if result, err := prepared(t, want).Apply(ns, ApplyOptions{Since: last}); err != nil ||
			result.Outcome != row.outcome {
			t.Errorf("%s: %+v, %v", row.change, result, err)
		}
	}
}
