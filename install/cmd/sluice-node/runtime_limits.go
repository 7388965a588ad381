package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// processors is the maximum number of threads that run Go code. Two workers visit pods, and
	// everything else mostly waits. On a node with 64 processors each garbage collection and each
	// wake-up would otherwise start many threads.
	processors = 2
	// gcPercent is the maximum garbage in percent of the memory in use. There are about a hundred
	// collections of 2 ms in an hour.
	gcPercent = 50
	// heapPercent is the share of the memory limit for Go's runtime in percent; buffers of the
	// kernel count toward the limit too.
	heapPercent = 90
)

// limitRuntime limits the resources of Go's runtime, and keeps it below the memory limit that the
// chart passes as GOMEMLIMIT. GOGC in the environment takes precedence, and GOMAXPROCS if it is
// lower.
func limitRuntime() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 100 * heapPercent)
	}
}
