package suite_test

import (
	"flag"
	"os"
	"testing"
)

// atOnce is how many tests that share the cluster run at the same time: they wait for containers
// most of the time.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A proof is a test with a sentence for a name.
type proof struct {
	sentence string
	prove    func(t *testing.T, w *world)
}

// A part has proofs that are alike.
type part struct {
	name string
	// Together: the proofs change nothing that concerns others, so that they may run at the same
	// time.
	together bool
	// Bare: the chart is not installed.
	bare bool
	// Nodes is how many nodes the proofs need; on a cluster with fewer they are no part of the
	// test.
	nodes  int
	proofs []proof
}

// TestSluice proves everything on one cluster, in this order.
func TestSluice(t *testing.T) {
	newWorld(t).prove(t, bare, installation, traffic, ipv6, exceptions, nodes, inspection, strict,
		faults, scale, ambient, leaving)
}

// prove runs the proofs of parts, one part after the other.
func (w *world) prove(t *testing.T, parts ...part) {
	for _, p := range parts {
		if p.nodes > len(w.Nodes()) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			for _, proof := range p.proofs {
				t.Run(proof.sentence, func(t *testing.T) {
					if p.together {
						t.Parallel()
					}
					w.saveOnFailure(t)
					if p.bare {
						w.mustUninstall(t)
					} else {
						w.mustInstall(t)
					}
					proof.prove(t, w)
				})
			}
		})
	}
}
