package suite_test

import (
	"flag"
	"os"
	"testing"
)

// parallelTests is the number of tests that run in parallel on the cluster. They mostly wait for
// containers.
const parallelTests = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A groupTest is a test whose name is a sentence.
type groupTest struct {
	name string
	run  func(t *testing.T, tc *testCluster)
}

// A testGroup is a group of tests with the same requirements.
type testGroup struct {
	name string
	// parallel is true if the tests can run in parallel.
	parallel bool
	// withoutChart is true if the chart must not be installed.
	withoutChart bool
	// nodes is the number of nodes that the tests require. On a smaller cluster, the tests are
	// omitted.
	nodes int
	// long is true if the tests run only with SLUICE_LONG=1.
	long  bool
	tests []groupTest
}

// TestSluice runs all groups on one cluster, in this order.
func TestSluice(t *testing.T) {
	newTestCluster(t).runGroups(t, beforeInstall, plainBurst, installation, traffic, ipv6, exceptions, nodes, inspection,
		strict, faults, scale, ambient, ambientNodes, ambientMigration, uninstallation)
}

// runGroups runs the groups one after the other.
func (tc *testCluster) runGroups(t *testing.T, groups ...testGroup) {
	for _, g := range groups {
		if g.nodes > len(tc.Nodes()) || g.long && os.Getenv("SLUICE_LONG") != "1" {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, test := range g.tests {
				t.Run(test.name, func(t *testing.T) {
					if g.parallel {
						t.Parallel()
					}
					tc.saveOnFailure(t)
					if g.withoutChart {
						tc.mustUninstall(t)
					} else {
						tc.mustInstall(t)
					}
					test.run(t, tc)
				})
			}
		})
	}
}
