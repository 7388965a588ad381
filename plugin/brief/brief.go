// Package brief is for programs that live for milliseconds, of which what Go's runtime does for a long life is a good part. It is imported
// for its effect: the program uses one processor from then on, and its main goroutine has a stack that need not grow any more.
//
// Packages are initialised in the order of their names, those that they import first. This one imports so little that most others come
// after it, and profit too; in a function main it would be too late for them.
//
// A package main that imports it also says //go:debug updatemaxprocs=0, which spares the goroutine, and the thread for it, that would
// follow the limit of the processors. Nobody but a package main can say that.
package brief

import "runtime"

// Within a few milliseconds there is nothing to do at the same time, and to hand it from thread to thread costs a tenth of them.
var _ = runtime.GOMAXPROCS(1)

// Packages are initialised by the main goroutine.
var _ = deepen(false)

// depth is more than what a command, or a verb of the plugin, takes for all its calls.
const depth = 96 << 10

// deepen makes the stack of the goroutine as deep, unless it is already: the beginning of a function sees to it that its variables have
// room. A stack that grows by and by is copied each time, with more calls on it. The variable is not touched, which would take the memory
// that is only reserved.
//
//go:noinline
func deepen(touch bool) byte {
	if !touch {
		return 0
	}
	var space [depth]byte
	return space[runtime.NumCPU()]
}
