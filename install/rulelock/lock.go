// Package rulelock limits the memory that an agent needs to read rules: the rules of one pod are
// read at a time.
//
// A process of a pod with CAP_NET_ADMIN can create as many rules as packages nft and xtables read.
// Several such pods, whose rules are read at the same time, would make the kernel kill the agent,
// again after each restart. Therefore all components of an agent that read rules of pods share a
// [Lock].
package rulelock

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// MaxReadMemory is an upper bound of the memory in bytes that reading and replacing the rules of a
// pod needs, with both backends at the limits of packages nft and xtables.
// TestMemoryOfTheLargestRulesets of package audit measures about 115 MiB. Ending the connections of
// the pod afterwards needs less; see package established.
const MaxReadMemory = 128 << 20

// A Lock is held while rules are read or written, and while the read rules are in use. The zero
// value is not held. A Lock must not be copied. Its methods are safe for concurrent use.
//
// A caller waits for the reads of the callers before it. The largest read takes seconds, so that
// each wait is finite; but it may be long if many pods have large rules.
type Lock struct {
	mu   sync.Mutex
	held bool
	// Each waiting caller has a channel, which is closed when the caller holds the lock.
	first, others []chan struct{}
}

// Acquire acquires the lock, in the order of the calls. If ctx is done before it is the caller's
// turn, it returns an error. If the lock is not held, it succeeds even if ctx is done.
func (l *Lock) Acquire(ctx context.Context) error { return l.acquire(ctx, &l.others) }

// AcquireFirst is like Acquire, and takes precedence over all calls of Acquire: it waits for at
// most one other read, and for other calls of AcquireFirst. It is for a pod that starts. Its
// network namespace contains no rules of the pod yet, so that the read is short and delays others
// little.
func (l *Lock) AcquireFirst(ctx context.Context) error { return l.acquire(ctx, &l.first) }

func (l *Lock) acquire(ctx context.Context, queue *[]chan struct{}) error {
	l.mu.Lock()
	if !l.held {
		l.held = true
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	*queue = append(*queue, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(*queue, turn)
	if i < 0 { // Release has passed the lock to the caller
		return nil
	}
	*queue = slices.Delete(*queue, i, i+1)
	return fmt.Errorf("wait until the rules of other pods have been read: %w", ctx.Err())
}

// Release releases the lock.
func (l *Lock) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&l.first, &l.others} {
		if len(*queue) > 0 {
			close((*queue)[0])
			*queue = slices.Delete(*queue, 0, 1)
			return
		}
	}
	l.held = false
}
