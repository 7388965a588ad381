// Command guest is the only program of the project that an initramfs needs: as /init, and by
// another name as the kernel's modprobe.
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
	// The kernel runs: modprobe -q -- NAME.
	if err := guest.Modprobe(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintf(os.Stderr, "modprobe: %v\n", err)
		os.Exit(1)
	}
}
