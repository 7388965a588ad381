package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// processors is how many threads run Go code at a time at most: pods are visited by two
	// workers, and all else waits. On a node of 64 processors each collection of garbage, and each
	// wake-up, would call up many threads more.
	processors = 2
	// garbage is how much of it there may be, in percent of what is in use. In an hour there are
	// some hundred collections of 2 ms.
	garbage = 50
	// heap is the part of the memory limit that Go's runtime may have, in percent; the kernel
	// counts its own buffers to the limit too.
	heap = 90
)

// frugal makes Go's runtime take little of the node, and stay below the memory limit that the chart
// passes as GOMEMLIMIT. GOGC in the environment counts, and GOMAXPROCS where it says less.
func frugal() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 100 * heap)
	}
}
