package istio_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/istio"
	"github.com/sluice-mesh/sluice/e2e/istio/matrix"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// The programs that are compared; "make test-peers" builds them.
const (
	istioIptables istio.Program = "istio-iptables"
	ourCommand    istio.Program = "rules"
)

// program finds one in the folder of built programs. Without root the test is skipped.
func program(t testing.TB, p istio.Program) istio.Program {
	t.Helper()
	netnstest.RequireRoot(t)
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", string(p)))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: \"make test-peers\" builds it", err)
	}
	return istio.Program(path)
}

// How many random configurations there are, and from which seed, unless the environment says
// otherwise.
const (
	fewRandom, manyRandom = 40, 400
	defaultSeed           = 20261120
)

// configurations are every parameter alone and random combinations: many with SLUICE_LONG, of
// another seed with SLUICE_SEED.
func configurations(t testing.TB) []istio.Configuration {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SLUICE_SEED"), strconv.Itoa(defaultSeed)), 10, 64)
	if err != nil {
		t.Fatalf("SLUICE_SEED: %v", err)
	}
	n := fewRandom
	if isLong() {
		n = manyRandom
	}
	alone := matrix.Alone()
	fmt.Printf("istio-iptables: %d configurations of one parameter, %d random ones (SLUICE_SEED=%d)\n", len(alone), n, seed)
	return append(alone, matrix.Random(seed, n)...)
}

// A counter shows how far a long test is.
type counter struct {
	done  atomic.Int64
	total int
}

const counterStep = 50

func (c *counter) step() {
	if n := c.done.Add(1); n%counterStep == 0 || int(n) == c.total {
		fmt.Printf("istio-iptables: %d of %d configurations\n", n, c.total)
	}
}
