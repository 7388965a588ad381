package route_test

import (
	"sync"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
)

// TestEnsureWhileOthersAddAndRemove checks that a route that another process removes between the
// kernel's refusal and the reading does not count as a conflicting route.
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
