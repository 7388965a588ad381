package route_test

import (
	"sync"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
)

// TestEnsureWhileOthersAddAndRemove checks that Ensure succeeds if another caller removes the route
// after the kernel has returned EEXIST and before Ensure lists the table.
func TestEnsureWhileOthersAddAndRemove(t *testing.T) {
	ns := netnstest.New(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				change, err := route.Ensure(ns, everything)
				if err == nil {
					err = change.Undo()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
