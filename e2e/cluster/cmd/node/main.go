// Command node is the monitor and the init of a machine; see package machine. It is a separate
// program, because a test binary must not run as init in the machine's namespaces.
//
//	node monitor DIR    runs the monitor of the machine in DIR
//	node init DIR       runs the init of the machine; only the monitor starts it
package main

import (
	"fmt"
	"os"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "monitor":
		return machine.RunMonitor(args[1], os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "init":
		return machine.Boot(os.Stdin, os.Stdout)
	default:
		return fmt.Errorf("arguments %q: want monitor or init, and a directory", args)
	}
}
