// Command demo demonstrates Sluice on any Linux machine. It needs root and nothing else. It creates
// a pod and its neighbor in network namespaces, programs the redirection, and shows the results of
// real connections before, during and after a change.
//
// The exit code is 0 if all results were as expected, 1 if a result was not, 2 if the demonstration
// could not finish, 3 without the required privileges or kernel features, and 128 plus the signal's
// number if it was interrupted. The command never leaves anything behind: the namespaces have no
// name and disappear with the process.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/plugin/signals"
)

// Exit codes.
const (
	exitAsExpected  = 0
	exitUnexpected  = 1
	exitError       = 2
	exitUnsupported = 3
	exitSignal      = 128 // plus the number of the signal
)

func main() { os.Exit(run()) }

// run runs the demonstration until its end or a signal.
func run() int {
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals.End()...)
	p := newPrinter(os.Stdout)
	done := make(chan int, 1)
	go func() { done <- demonstrate(p) }()
	select {
	case code := <-done:
		return code
	case s := <-received:
		fmt.Fprintf(os.Stderr,
			"\ndemo: %s: nothing is left: the namespaces disappear with this process\n", s)
		return exitSignal + int(s.(unix.Signal))
	}
}

// demonstrate runs all parts and returns the exit code.
func demonstrate(p *printer) int {
	err := perform(p)
	switch {
	case err == nil && p.unexpected == 0:
		p.printLine("")
		p.printLine("All results are as expected.")
		return exitAsExpected
	case err == nil:
		fmt.Fprintf(os.Stderr, "demo: %d of the results above are not as expected\n", p.unexpected)
		return exitUnexpected
	case errors.Is(err, unix.EPERM):
		fmt.Fprintf(os.Stderr,
			"demo: needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SETUID and CAP_SETGID): "+
				"run it with sudo; %v\n", err)
		return exitUnsupported
	case nft.IsNotSupported(err):
		fmt.Fprintf(os.Stderr, "demo: this kernel lacks a feature: %v\n", err)
		return exitUnsupported
	}
	fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	return exitError
}
