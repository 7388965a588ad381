// Command kubectl-sluice is a kubectl plugin: kubectl sluice VERB [POD] [FLAG]... runs the command
// rules about a pod in the node agent of the pod's node, with the rights of the user, and kubectl
// sluice status summarizes the cluster.
//
// The user needs the rights to get pods in their namespaces, and to list pods and create pods/exec
// in the namespace of the node agents; kubectl sluice status also lists nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientexec "k8s.io/client-go/util/exec"
)

// version is set by the linker.
var version = "devel"

// The exit codes of kubectl sluice itself. Otherwise it has the code of the command rules.
const (
	exitBadInput = 2
	exitFailed   = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := run(ctx, stop, streams, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes a command line and returns its exit code. The first signal cancels ctx; after stop a
// second one ends the process.
func run(ctx context.Context, stop func(), streams genericiooptions.IOStreams, args []string) int {
	o, root := newCommand(streams, stop)
	o.asJSON = asksForJSON(args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	remote, input := new(clientexec.CodeExitError), new(inputError)
	switch {
	case err == nil:
		return 0
	case errors.As(err, remote):
		return remote.Code
	case errors.As(err, input):
		o.report(err)
		return exitBadInput
	}
	o.report(err)
	return exitFailed
}

// An inputError reports a wrong command line.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

func badInput(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }
