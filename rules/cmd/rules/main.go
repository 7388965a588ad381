// Command rules programs, shows, checks and explains the traffic redirection of a mesh pod. Its
// flags and environment variables are those of istio-iptables; `rules help` describes it.
//
//go:debug updatemaxprocs=0
package main

import (
	"os"
	"runtime/debug"

	_ "github.com/sluice-mesh/sluice/plugin/faststart" // a command takes milliseconds
)

func main() {
	sparePrefixes(os.Args[1:])
	os.Exit(run(thisSystem(), os.Args[1:]))
}

// sparePrefixes disables the garbage collector for thousands of prefixes, which are all needed
// until the end. The kernel limits the size of the command line and therefore the memory that this
// takes.
func sparePrefixes(args []string) {
	size := 0
	for _, a := range args {
		size += len(a)
	}
	if size > 64<<10 {
		debug.SetGCPercent(400)
	}
}
