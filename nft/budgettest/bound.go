// Package budgettest bounds in tests the work that input of others may cause.
package budgettest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Bound is how much a piece of work may take.
type Bound struct {
	// Processor is how much time of a processor. Unlike the time that passes, it does not depend on
	// what else the machine does. Work within a budget of time that passes takes no more of it, but
	// for what follows the last look at the clock.
	Processor time.Duration
	// Allocated is how many bytes are allocated, whether or not they are freed meanwhile.
	Allocated uint64
}

// Check runs a function, and fails the test if it takes more than the bound. What other goroutines
// allocate counts as well.
func (b Bound) Check(t testing.TB, what string, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := processorTime(t)
	do()
	took := processorTime(t) - began
	runtime.ReadMemStats(&after)
	if took > b.Processor {
		t.Errorf("%s took %s of a processor, more than %s", what, took, b.Processor)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > b.Allocated {
		t.Errorf("%s allocated %d MB, more than %d MB", what, allocated>>20, b.Allocated>>20)
	}
}

// processorTime returns how much time of a processor the thread has used.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Nano())
}
