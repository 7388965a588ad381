// Package faststart shortens the start of programs that run for a few milliseconds. Programs import
// it for its effect: a program uses one processor, and the stack of its main goroutine need not
// grow.
//
//	import _ "github.com/sluice-mesh/sluice/plugin/faststart"
//
// Packages are initialized in the order of their import paths, each after the packages that it
// imports. This package imports so little that most others are initialized after it. Its effect
// therefore also applies to their initialization, unlike the effect of a call in the function main.
//
// A package main that imports it should also have the line
//
//	//go:debug updatemaxprocs=0
//
// which turns off the goroutine, and its thread, that update GOMAXPROCS when the CPU limit changes.
// Only a package main can have such a line.
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
