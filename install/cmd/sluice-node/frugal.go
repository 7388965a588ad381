package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// processors is how many threads run Go code at a time at most: pods are visited by two workers, and all else waits. On a node of 64
	// processors each collection of garbage, and each wake-up, would call up many threads more.
	processors = 2
	// garbage is how much of it there may be, in percent of what is in use. In an hour there are some hundred collections of 2 ms.
	garbage = 50
)

// frugal makes Go's runtime take little of the node. GOGC in the environment counts, and GOMAXPROCS where it says less.
func frugal() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}
