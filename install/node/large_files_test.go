package node_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/nft/budgettest"
)

// TestLargeConfigurationIsReported checks that a configuration file of more than 1 MiB is not read,
// and is reported like a file that the agent cannot read.
func TestLargeConfigurationIsReported(t *testing.T) {
	tn := newTestNode(t)
	large := list("calico") + strings.Repeat(" ", 1<<20)
	tn.put("conf/05-large.conflist", large)
	tn.put("conf/10-a.conflist", list("calico"))
	s := tn.reconcile()
	tn.wantProblem(s, node.InvalidConfiguration, "05-large.conflist", "has more than 1048576 bytes")
	if s.Installed() || tn.read("conf/05-large.conflist") != large {
		t.Error("the node is installed, or the large file was changed")
	}
}

// TestLargeCachedResultIsAnError checks that a file that is larger than any result is not read, and
// that the counts are then known to be incomplete.
func TestLargeCachedResultIsAnError(t *testing.T) {
	tn := newTestNode(t)
	tn.cacheResult("one", "calico")
	tn.put("results/two", `{"kind":"cniCacheV1"}`+strings.Repeat(" ", 2<<20))
	got, err := node.References([]string{tn.path("results")}, noPod)
	if err == nil || !strings.Contains(err.Error(), "results/two has more than 2097152 bytes") ||
		got["calico"].Sandboxes != 1 {
		t.Errorf("counts %v, error %v; want 1 sandbox and an error", got, err)
	}
}

// TestLargeExecutableIsNotKeptInMemory checks that the checksum of an executable needs little
// memory: another program can have the plugin's name.
func TestLargeExecutableIsNotKeptInMemory(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.must(os.Truncate(tn.path("bin/sluice-cni"), 64<<20))
	n := tn.node()
	bound := budgettest.Bound{Processor: 30 * time.Second, Allocated: 16 << 20}
	bound.Check(t, "a reconciliation with an executable of 64 MiB", func() { n.Reconcile(t.Context()) })
}
