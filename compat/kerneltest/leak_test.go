package kerneltest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-mesh/sluice/compat/kerneltest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestNetworksLeakNothing creates, uses and closes networks, and verifies that no descriptors and
// no namespaces remain. TestMain checks that no goroutines remain.
func TestNetworksLeakNothing(t *testing.T) {
	netnstest.RequireIDs(t, 1337, 1337)
	round := func(seed uint64) {
		n, err := kerneltest.NewNetwork()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Trial(seed, 8); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	round(1) // opens the descriptors of the runtime's poller, which remain
	descriptors, namespaces := countOpen(t)
	for seed := range uint64(5) {
		round(seed)
	}
	rulestest.EventuallySucceeds(t, "no more descriptors and namespaces than before", func() error {
		nowDescriptors, nowNamespaces := countOpen(t)
		if nowDescriptors <= descriptors && nowNamespaces <= namespaces {
			return nil
		}
		return fmt.Errorf("%d descriptors, %d before; %d namespaces, %d before", nowDescriptors,
			descriptors, nowNamespaces, namespaces)
	})
}

// countOpen returns the number of open descriptors, and of the network namespaces that descriptors
// and threads refer to.
func countOpen(t *testing.T) (descriptors, namespaces int) {
	t.Helper()
	seen := map[string]bool{}
	for _, pattern := range []string{"/proc/self/fd/*", "/proc/self/task/*/ns/net"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if pattern == "/proc/self/fd/*" {
			descriptors = len(files)
		}
		for _, file := range files {
			target, err := os.Readlink(file)
			if matched, _ := filepath.Match("net:*", target); err == nil && matched {
				seen[target] = true
			}
		}
	}
	return descriptors, len(seen)
}
