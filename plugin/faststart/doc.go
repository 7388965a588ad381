// Package faststart makes programs start faster that run for a few milliseconds. It is imported for
// its effect: the program uses one processor, and the stack of its main goroutine need not grow.
//
//	import _ "github.com/sluice-mesh/sluice/plugin/faststart"
//
// Packages are initialized in the order of their import paths, each after the packages that it
// imports. This package imports so little that most others are initialized after it. Therefore its
// effect includes their initialization, which a call in the function main would come too late for.
//
// A package main that imports it should also have the line
//
//	//go:debug updatemaxprocs=0
//
// which saves the goroutine, and its thread, that follow changes of the limit of processors. Only a
// package main can have it.
package faststart

import "runtime"

// A program that runs for a few milliseconds has no parallel work, and moving work between threads
// takes a tenth of its time.
var _ = runtime.GOMAXPROCS(1)

// Packages are initialized by the main goroutine.
var _ = growStack(false)

// stackSize is more than a command, or a verb of the plugin, needs for all its calls.
const stackSize = 96 << 10

// growStack grows the stack of the goroutine to stackSize: the prologue of a function ensures that
// there is room for its variables. Otherwise the stack would grow step by step, and be copied each
// time. touch must be false, so that the array is reserved but not cleared.
//
//go:noinline
func growStack(touch bool) byte {
	if !touch {
		return 0
	}
	var space [stackSize]byte
	return space[runtime.NumCPU()]
}
