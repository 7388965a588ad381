// Command guest is the init of a virtual machine. Called as modprobe, it loads the module that the
// kernel requests.
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
