// Package faststart shortens the start of programs that run for a few milliseconds. Programs import
// it for its effect: the program uses one processor, and the stack of its main goroutine has its
// final size from the beginning.
//
//	import _ "github.com/sluice-mesh/sluice/plugin/faststart"
//
// Packages are initialized in the order of their import paths, each after the packages that it
// imports. This package imports so little that most others are initialized after it. Its effect
// therefore also applies to their initialization, unlike the effect of a call in the function main.
//
// A package main that imports this package should also have the line
//
//	//go:debug updatemaxprocs=0
//
// which turns off the goroutine that updates GOMAXPROCS when the CPU limit changes, and the thread
// of this goroutine. Only a package main can have such a line.
package faststart

import "runtime"

// A program that runs for a few milliseconds has no parallel work, and moving work between threads
// takes a tenth of its time.
var _ = runtime.GOMAXPROCS(1)

// The main goroutine initializes all packages: this call grows its stack.
var _ = growStack(false)

// stackSize, in bytes, is more than the main goroutine of a command, or of the plugin, needs.
const stackSize = 96 << 10

// growStack grows the stack of the goroutine to stackSize: the prologue of a function ensures that
// there is room for its variables. Otherwise the stack would grow step by step, and be copied each
// time. touch must be false, so that the array is reserved but not cleared. The variable index
// prevents the compiler from removing the array.
//
//go:noinline
func growStack(touch bool) byte {
	if !touch {
		return 0
	}
	var space [stackSize]byte
	return space[runtime.NumCPU()]
}
