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

// The compared programs. "make test-peers" builds them.
const (
	istioIptables istio.Program = "istio-iptables"
	sluiceCommand istio.Program = "rules"
)

// program returns the path of a built program. Without root, it skips the test.
func program(t testing.TB, p istio.Program) istio.Program {
	t.Helper()
	netnstest.RequireRoot(t)
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", string(p)))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: run \"make test-peers\"", err)
	}
	return istio.Program(path)
}

// Numbers of random configurations in the short and the long form, and the default seed.
const (
	fewRandom, manyRandom = 40, 400
	defaultSeed           = 20261120
)

// randomSeed returns the seed of random configurations: SLUICE_SEED, or defaultSeed if it is not
// set.
func randomSeed(t testing.TB) uint64 {
	t.Helper()
	s, err := strconv.ParseUint(cmp.Or(os.Getenv("SLUICE_SEED"), strconv.Itoa(defaultSeed)), 10, 64)
	if err != nil {
		t.Fatalf("SLUICE_SEED: %v", err)
	}
	return s
}

// configurations returns the configurations of the matrix, with one varied parameter each, and
// random combinations. SLUICE_LONG increases the number of combinations; SLUICE_SEED sets the seed.
func configurations(t testing.TB) []istio.Configuration {
	seed, n := randomSeed(t), fewRandom
	if isLong() {
		n = manyRandom
	}
	single := matrix.Single()
	fmt.Printf(
		"istio-iptables: %d configurations with one varied parameter, %d random configurations "+
			"(SLUICE_SEED=%d)\n", len(single), n, seed)
	return append(single, matrix.Random(seed, n)...)
}

// A counter prints the progress of a long test.
type counter struct {
	done  atomic.Int64
	total int
}

// counterStep is the number of configurations after which a message is printed.
const counterStep = 50

// step counts a configuration.
func (c *counter) step() {
	if n := c.done.Add(1); n%counterStep == 0 || int(n) == c.total {
		fmt.Printf("istio-iptables: %d of %d configurations\n", n, c.total)
	}
}
