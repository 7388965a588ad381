package netns_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

const timeout = time.Minute

func TestLockAdmitsOneAtATime(t *testing.T) {
	ns := netnstest.New(t)
	var holders, maxHolders atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				release, taken, err := ns.Lock(timeout)
				if err != nil || !taken {
					t.Errorf("taken %v, %v", taken, err)
					return
				}
				if n := holders.Add(1); n > maxHolders.Load() {
					maxHolders.Store(n)
				}
				holders.Add(-1)
				release()
			}
		})
	}
	group.Wait()
	if maxHolders.Load() != 1 {
		t.Errorf("%d goroutines held the lock at once", maxHolders.Load())
	}
}

func TestLockOfAnotherNamespaceIsFree(t *testing.T) {
	for range 2 {
		release, taken, err := netnstest.New(t).Lock(0)
		if err != nil || !taken {
			t.Fatalf("taken %v, %v", taken, err)
		}
		defer release()
	}
}

func TestLockGivesUpWaiting(t *testing.T) {
	ns := netnstest.New(t)
	release, _, err := ns.Lock(timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	again, taken, err := ns.Lock(time.Millisecond)
	if err != nil || taken {
		t.Fatalf("taken %v, %v, want it not taken and no error", taken, err)
	}
	again()
}
