// Package budgettest checks in tests that untrusted input causes a bounded amount of work.
package budgettest

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Bound is the maximum cost of a function.
type Bound struct {
	// Processor is the maximum processor time of the thread. Unlike elapsed time, processor time
	// does not depend on other load of the machine. For a function with a deadline, add the time
	// from its last check of the clock to its return. With the race detector, the maximum is
	// raceSlowdown times as large.
	Processor time.Duration
	// Allocated is the maximum number of bytes allocated on the heap, including freed ones.
	Allocated uint64
}

// raceSlowdown is the maximum factor by which the race detector slows programs down, according to
// its documentation (https://go.dev/doc/articles/race_detector).
const raceSlowdown = 20

// Check runs a function, and fails the test if the function exceeds the bound. Allocations of other
// goroutines count too.
func (b Bound) Check(t testing.TB, description string, fn func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, start := allocatedBytes(), processorTime(t)
	fn()
	used, allocated := processorTime(t)-start, allocatedBytes()-before
	maximum := b.Processor
	if RaceDetector {
		maximum *= raceSlowdown
	}
	if used > maximum {
		t.Errorf("%s took %s of processor time, more than %s", description, used, maximum)
	}
	if allocated > b.Allocated {
		t.Errorf("%s allocated %d MiB, more than %d MiB", description, allocated>>20, b.Allocated>>20)
	}
}

// allocatedBytes returns the number of bytes that the process has allocated on the heap, except
// small objects in spans that are not full yet: the runtime counts these later.
// runtime.ReadMemStats would count them, but it stops all goroutines. With Go 1.26.8, fuzz workers
// with goroutines in system calls then sometimes did not continue until a timer fired.
func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// processorTime returns the processor time of the thread.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		t.Fatalf("clock_gettime: %v", err)
	}
	return time.Duration(used.Nano())
}
