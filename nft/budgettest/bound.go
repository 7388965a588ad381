// Package budgettest checks in tests that untrusted input causes a bounded amount of work.
package budgettest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Bound is the maximum cost of a function.
type Bound struct {
	// Processor is the processor time of the thread. Unlike elapsed time, it does not depend on
	// other load of the machine. The deadline of a function also limits its
	// processor time, except for the work after the function last checks the clock.
	Processor time.Duration
	// Allocated is the number of allocated bytes, including freed ones.
	Allocated uint64
}

// Check runs a function, and fails the test if it exceeds the bound. Allocations of other
// goroutines count too.
func (b Bound) Check(t testing.TB, description string, fn func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processorTime(t)
	fn()
	used := processorTime(t) - start
	runtime.ReadMemStats(&after)
	if used > b.Processor {
		t.Errorf("%s took %s of processor time, more than %s", description, used, b.Processor)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > b.Allocated {
		t.Errorf("%s allocated %d MiB, more than %d MiB", description, allocated>>20, b.Allocated>>20)
	}
}

// processorTime returns the processor time of the thread.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Nano())
}
