// Command rules applies, shows, checks and explains the traffic redirection of a mesh pod. It
// accepts the flags and environment variables of istio-iptables.
//
//go:debug updatemaxprocs=0
package main

import (
	"os"
	"runtime/debug"

	// Package faststart tunes the Go runtime for a process of a few milliseconds.
	_ "github.com/sluice-mesh/sluice/plugin/faststart"

	"github.com/sluice-mesh/sluice/nft"
)

func main() {
	raiseGCPercent(os.Args[1:])
	nft.LimitReads(maxLiveRules())
	os.Exit(run(thisSystem(), os.Args[1:]))
}

// raiseGCPercent makes garbage collection less frequent if the arguments contain thousands of
// prefixes, because nearly all memory stays in use until exit. The kernel's limit on the size of
// the command line bounds the memory used.
func raiseGCPercent(args []string) {
	const (
		manyBytes     = 64 << 10 // the size of thousands of prefixes
		raisedPercent = 400      // instead of 100
	)
	size := 0
	for _, a := range args {
		size += len(a)
	}
	if size > manyBytes {
		debug.SetGCPercent(raisedPercent)
	}
}
