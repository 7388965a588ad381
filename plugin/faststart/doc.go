// Package faststart makes programs start faster that run for a few milliseconds. It is imported for
// its effect: the program uses one processor, and the stack of its main goroutine need not grow.
//
//	import _ "github.com/sluice-mesh/sluice/plugin/faststart"
//
// Packages are initialised in the order of their import paths, after those that they import. This
// one imports so little that most others are initialised after it, with the same effect; in a
// function main it would be too late for them.
//
// A package main that imports it should also have the line
//
//	//go:debug updatemaxprocs=0
//
// which saves the goroutine, and its thread, that follow changes of the limit of processors. Only a
// package main can have it.
package faststart

import "runtime"

// For a few milliseconds there is nothing to run in parallel. Moving work between threads costs a
// tenth of them.
var _ = runtime.GOMAXPROCS(1)

// Packages are initialised by the main goroutine.
var _ = growStack(false)

// stackSize is more than a command, or a verb of the plugin, needs for all its calls.
const stackSize = 96 << 10

// growStack makes the goroutine's stack as large: the prologue of a function ensures that there is
// room for its variables. Otherwise the stack would grow step by step, and be copied each time. The
// variable is not touched, because that would use the memory, which is only reserved.
//
//go:noinline
func growStack(touch bool) byte {
	if !touch {
		return 0
	}
	var space [stackSize]byte
	return space[runtime.NumCPU()]
}
