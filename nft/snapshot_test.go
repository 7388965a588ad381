package nft

import (
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// readSnapshot returns a snapshot of the namespace.
func readSnapshot(t *testing.T, ns *netns.NS) Snapshot {
	t.Helper()
	r, err := ReadSince(ns, 0, rules.Routing{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestApplyWithACurrentSnapshotReadsOnlyIfNothingDiffers counts the requests to the kernel other
// than transactions.
func TestApplyWithACurrentSnapshotReadsOnlyIfNothingDiffers(t *testing.T) {
	prefixes := excluding(prefixList("10.0.0.0/24", "10.0.2.0/24")...)
	for _, row := range []struct {
		name     string
		present  rules.Ruleset
		outcome  Outcome
		requests bool
	}{
		{
			"a prefix differs", excluding(prefixList("10.0.0.0/24", "10.0.4.0/24")...), Updated,
			false,
		},
		{"rules differ", example("lists-and-groups"), Replaced, false},
		{"no difference, but the snapshot may be outdated", prefixes, Unchanged, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, row.present, Created)
			var requested atomic.Int32
			c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
				if !isBatch(request) {
					requested.Add(1)
				}
				return kernel(request)
			})
			a := newApplier(c, mustPrepare(t, prefixes), ApplyOptions{})
			a.snapshot = readSnapshot(t, ns)
			err := ns.Do(a.run)
			if got := a.resultAfter(err); err != nil || got.Outcome != row.outcome ||
				(requested.Load() > 0) != row.requests {
				t.Errorf("outcome %s, error %v, %d requests, want outcome %s, any requests: %t",
					got.Outcome, err, requested.Load(), row.outcome, row.requests)
			}
			checkRuleset(t, ns, prefixes)
		})
	}
}

// TestAChangeAfterTheSnapshotIsDetected covers changes after the snapshot was taken. After most of
// them, a transaction planned from the snapshot would result in a wrong ruleset.
func TestAChangeAfterTheSnapshotIsDetected(t *testing.T) {
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
			"a chain that equals the desired one is flushed", "flush chain inet sluice nat-output",
			before, Replaced,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, before, Created)
			snapshot := readSnapshot(t, ns)
			load(t, ns, row.change)
			result, err := mustPrepare(t, row.want).Apply(ns, ApplyOptions{Since: snapshot})
			if err != nil || result.Outcome != row.outcome {
				t.Errorf("outcome %s, error %v, want %s", result.Outcome, err, row.outcome)
			}
			checkRuleset(t, ns, row.want)
		})
	}
}

// TestSnapshotOfAnotherNamespaceIsNotUsed uses two namespaces with the same generation.
func TestSnapshotOfAnotherNamespaceIsNotUsed(t *testing.T) {
	one, other := netnstest.New(t), netnstest.New(t)
	mustApply(t, one, excluding(prefixList("10.0.0.0/24", "10.0.2.0/24")...), Created)
	mustApply(t, other, excluding(prefixList("10.0.0.0/24", "10.0.8.0/24")...), Created)
	snapshot := readSnapshot(t, one)
	if now := readSnapshot(t, other); now.Generation != snapshot.Generation {
		t.Fatalf("generations %d and %d: want equal generations", snapshot.Generation, now.Generation)
	}
	want := excluding(prefixList("10.0.0.0/24", "10.0.4.0/24")...)
	if _, err := mustPrepare(t, want).Apply(other, ApplyOptions{Since: snapshot}); err != nil {
		t.Error(err)
	}
	checkRuleset(t, other, want)
}

// TestOutdatedSnapshotOfTheDesiredRulesetIsNotUsed passes an outdated snapshot that equals the
// desired ruleset. From the snapshot alone, no change would be needed.
func TestOutdatedSnapshotOfTheDesiredRulesetIsNotUsed(t *testing.T) {
	want := example("sidecar-ipv4")
	for _, row := range []struct {
		change  string
		outcome Outcome
	}{{"delete table inet sluice", Created}, {"add rule inet sluice nat-output drop", Replaced}} {
		ns := netnstest.New(t)
		mustApply(t, ns, want, Created)
		snapshot := readSnapshot(t, ns)
		load(t, ns, row.change)
		if result, err := mustPrepare(t, want).Apply(ns, ApplyOptions{Since: snapshot}); err != nil ||
			result.Outcome != row.outcome {
			t.Errorf("%s: %+v, error %v, want %s", row.change, result, err, row.outcome)
		}
		checkRuleset(t, ns, want)
	}
}
