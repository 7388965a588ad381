// Command node is the keeper of a machine and its init, as package machine describes them. It is a
// program of its own, and not the caller's, because init runs alone in its namespaces, where a test
// binary has no business.
//
//	node keep DIR    is the keeper of the machine in the folder
//	node init DIR    is its first process, started by the keeper
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
	case len(args) == 2 && args[0] == "keep":
		return machine.RunKeeper(args[1], os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "init":
		return machine.Boot(os.Stdin, os.Stdout)
	default:
		return fmt.Errorf("arguments %q: want keep or init, and a folder", args)
	}
}
