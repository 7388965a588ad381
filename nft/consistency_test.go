package nft

import (
	"errors"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestReaderNeverReturnsAMixture reads while another process alternates continuously between two
// rulesets.
func TestReaderNeverReturnsAMixture(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	mustApply(t, ns, example(alternatives[1]), Created)
	writer := startProcess(t, ns, nil, "apply alternately")
	seen := map[string]int{}
	for i := 0; i < repetitions(300, 10_000) || len(seen) < 2; i++ {
		if i%3 == 0 {
			writer.readLine(t) // check that the writer is running, and let it continue
		}
		seen[completeAlternative(t, ns)]++
	}
	t.Log(seen)
	if seen["nothing"] > 0 {
		t.Errorf("%d reads found no table, want 0", seen["nothing"])
	}
}

// TestReaderNeverReturnsAMixtureOfSets reads while the elements of two sets are changed in place,
// each time in one transaction, at the maximum rate.
func TestReaderNeverReturnsAMixtureOfSets(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	versions := []rules.Ruleset{manyPrefixes(0, 40), manyPrefixes(40, 40)}
	mustApply(t, ns, versions[0], Created)
	stop := updateWithoutPause(t, ns, versions)
	defer stop()
	seen := [2]int{}
	// Use one socket: closing a socket waits until the kernel has freed objects that other
	// processes have deleted.
	withConn(t, ns, func(c *conn) error {
		for i := 0; i < repetitions(50, 20_000) || seen[0] == 0 || seen[1] == 0; i++ {
			found, err := c.readSluiceTable(&foundTable{Table: rules.Table{Name: rules.TableName}},
				newExpectation(nil))
			if errors.Is(err, errBusy) {
				// Fast updates may interrupt a thousand reads in a row. The error means that no
				// mixture was returned.
				continue
			}
			if err != nil {
				return err
			}
			got := rules.Ruleset{Tables: []rules.Table{found.tables[0].Table}}
			switch {
			case sameTables(versions[0], got):
				seen[0]++
			case sameTables(versions[1], got):
				seen[1]++
			default:
				t.Fatalf("read %d returned neither the first nor the second version:\n%s", i, got)
			}
		}
		return nil
	})
	t.Log(seen)
}

// sameTables reports whether the rulesets are equal except for their routing.
func sameTables(a, b rules.Ruleset) bool {
	return rules.Equal(rules.Ruleset{Tables: a.Tables}, rules.Ruleset{Tables: b.Tables})
}
