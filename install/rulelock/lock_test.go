package rulelock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/rulelock"
)

// TestLockIsHeldInTheOrderOfCalls checks that callers hold the lock one at a time, in the order of
// their calls, and that callers of AcquireFirst precede the others.
func TestLockIsHeldInTheOrderOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock rulelock.Lock
		var order []string
		holders := 0
		start := func(name string, acquire func(context.Context) error) {
			go func() {
				if err := acquire(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if holders++; holders > 1 {
					t.Errorf("%s: %d callers hold the lock, want 1", name, holders)
				}
				order = append(order, name)
				time.Sleep(time.Second)
				holders--
				lock.Release()
			}()
			synctest.Wait()
		}
		start("read", lock.Acquire)
		start("audit", lock.Acquire)
		start("reconciliation", lock.Acquire)
		start("ADD", lock.AcquireFirst)
		start("second ADD", lock.AcquireFirst)
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"read", "ADD", "second ADD", "audit", "reconciliation"}
		if !slices.Equal(order, want) {
			t.Errorf("the lock is held by %q, want %q", order, want)
		}
	})
}

// TestWaitEndsWithTheContext checks that a caller stops waiting when its context ends, and that the
// next caller then gets the lock.
func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock rulelock.Lock
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lock.Acquire(ended); err != nil {
			t.Fatalf("the lock is not held: error %v, want none", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		failed := make(chan error)
		go func() { failed <- lock.Acquire(ctx) }()
		synctest.Wait()
		next := make(chan error)
		go func() { next <- lock.Acquire(t.Context()) }()
		synctest.Wait()
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the lock is held: error %v, want a deadline", err)
		}
		lock.Release()
		if err := <-next; err != nil {
			t.Errorf("the next caller: %v", err)
		}
		lock.Release()
		if err := lock.AcquireFirst(ended); err != nil {
			t.Errorf("the lock was released: error %v, want none", err)
		}
	})
}
