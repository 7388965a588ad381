package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// maxThreads is the maximum number of threads that run Go code. Two workers audit pods, and the
	// other goroutines mostly wait. Without the limit each garbage collection and each wake-up
	// would start many threads on a node with 64 processors.
	maxThreads = 2
	// gcPercent is the value of GOGC: a collection starts when the heap has grown by this
	// percentage. About a hundred collections of 2 ms then run in an hour.
	gcPercent = 50
	// memoryPercent is the percentage of the container's memory limit that the Go runtime may use.
	// The rest is for buffers of the kernel, which count toward the limit too.
	memoryPercent = 90
)

// limitRuntime limits the threads, heap growth and memory of the Go runtime. The chart passes the
// container's memory limit as GOMEMLIMIT. GOGC in the environment takes precedence over gcPercent,
// and a lower GOMAXPROCS over maxThreads.
func limitRuntime() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxThreads))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 100 * memoryPercent)
	}
}
