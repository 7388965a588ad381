// Command guest is the init of a virtual machine.
package main

import (
	"os"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

func main() { guest.Init(os.Stdout) }
