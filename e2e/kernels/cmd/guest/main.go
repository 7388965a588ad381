// Command guest is the only program of the project's own that an initramfs needs: /init, and by
// another name the kernel's modprobe.
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
	// The kernel calls: modprobe -q -- NAME.
	if err := guest.Modprobe(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintf(os.Stderr, "modprobe: %v\n", err)
		os.Exit(1)
	}
}
