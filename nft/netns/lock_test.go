package netns_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

const timeout = time.Minute

func TestLockHasOneHolderAtATime(t *testing.T) {
	ns := netnstest.New(t)
	var holders, maxHolders atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				release, acquired, err := ns.Lock(timeout)
				if err != nil || !acquired {
					t.Errorf("acquired %t, error %v, want true and no error", acquired, err)
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
		t.Errorf("%d goroutines held the lock at the same time, want 1", maxHolders.Load())
	}
}

func TestLockOfAnotherNamespaceIsFree(t *testing.T) {
	for range 2 {
		release, acquired, err := netnstest.New(t).Lock(0)
		if err != nil || !acquired {
			t.Fatalf("acquired %t, error %v, want true and no error", acquired, err)
		}
		defer release()
	}
}

func TestLockReturnsAfterTheWaitIfTheLockIsHeld(t *testing.T) {
	ns := netnstest.New(t)
	release, _, err := ns.Lock(timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	releaseSecond, acquired, err := ns.Lock(time.Millisecond)
	if err != nil || acquired {
		t.Fatalf("acquired %t, error %v, want false and no error", acquired, err)
	}
	releaseSecond()
}
