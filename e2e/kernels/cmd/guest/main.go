// Command guest is the init of a virtual machine. Under another name, it is the modprobe that the
// kernel calls.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

func main() {
	if filepath.Base(os.Args[0]) != filepath.Base(guest.ModprobePath) {
		guest.Init(os.Stdout)
		return
	}
	// The kernel runs modprobe -q -- NAME.
	if err := guest.Modprobe(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintf(os.Stderr, "modprobe: %v\n", err)
		os.Exit(1)
	}
}
