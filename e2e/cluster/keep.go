package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// waitForInterrupt keeps the cluster running until SIGINT or SIGTERM. It writes to the terminal if
// there is one, because go test may delay a test's output until the test ends.
func (c *Cluster) waitForInterrupt() {
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt, unix.SIGTERM)
	defer signal.Stop(interrupt)
	var out io.Writer = os.Stderr
	if terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		defer func() { _ = terminal.Close() }()
		out = terminal
	}
	c.printAccess(out)
	<-interrupt
}

// printAccess describes how to access the cluster.
func (c *Cluster) printAccess(out io.Writer) {
	fmt.Fprintf(out, "\nE2E_KEEP=1: the cluster runs until an interrupt, or kill -INT %d\n",
		os.Getpid())
	fmt.Fprintf(out, "  export KUBECONFIG=%s\n", c.kubeconfig)
	for _, n := range c.nodes {
		fmt.Fprintf(out, "  %s   # a shell on %s\n", n.Command(context.Background(), "bash"),
			n.Name())
	}
}
