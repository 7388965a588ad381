// Command kubectl-sluice is a kubectl plugin: kubectl sluice VERB [POD] [FLAG]... runs the command
// rules for a pod in the node agent of the pod's node, with the permissions of the user. kubectl
// sluice status summarizes the cluster.
//
// The user needs permission to get pods in the namespaces of the pods, and to list pods and create
// pods/exec in the namespace of the node agents. A label selector or a kind, such as
// deployment/web, also needs permission to list pods in the namespaces of the pods and to get the
// object; kubectl sluice status also lists nodes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/sluice-mesh/sluice/plugin/signals"
)

// version is set by the linker.
var version = "devel"

// The exit codes of kubectl sluice itself. If the rules command ran, its exit code is returned.
const (
	exitBadInput = 2
	exitFailed   = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), signals.End()...)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := run(ctx, stop, streams, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes a command line and returns its exit code. The first signal cancels ctx. After a call
// of stop, the next signal ends the process.
func run(ctx context.Context, stop func(), streams genericiooptions.IOStreams, args []string) int {
	stdout := &errorWriter{output: streams.Out}
	streams.Out = stdout
	o, root := newCommand(streams, stop)
	o.asJSON = asksForJSON(args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if writeErr := stdout.firstError(); writeErr != nil && (err == nil || errors.Is(err, writeErr)) {
		o.report(writeErr)
		return exitFailed
	}
	remote := new(clientexec.CodeExitError)
	switch {
	case err == nil:
		return 0
	case errors.As(err, remote):
		return remote.Code
	case !o.started:
		o.report(commandLineError(err))
		return exitBadInput
	}
	o.report(err)
	return codeOf(err)
}

// codeOf returns the exit code for an error of kubectl sluice itself.
func codeOf(err error) int {
	if errors.As(err, new(inputError)) {
		return exitBadInput
	}
	return exitFailed
}

// An errorWriter keeps the first error of its output, because cobra ignores errors of writing help.
// It is safe for concurrent use if its output is.
type errorWriter struct {
	output io.Writer

	mu  sync.Mutex
	err error
}

func (w *errorWriter) Write(data []byte) (int, error) {
	n, err := w.output.Write(data)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = cmp.Or(w.err, err)
	}
	return n, err
}

func (w *errorWriter) firstError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// A checkedValue is the value of a flag. It collects an error of a wrong value, so that all wrong
// values are reported together.
type checkedValue struct {
	pflag.Value
	flag   string
	want   string // the allowed values
	faults *[]error
}

// Set implements [pflag.Value].
func (v checkedValue) Set(text string) error {
	if v.Value.Set(text) != nil {
		*v.faults = append(*v.faults, badInput("--%s: %q is not %s", v.flag, text, v.want))
	}
	return nil
}

// check makes the flags, other than texts, collect the errors of wrong values in o.flagFaults.
func (o *options) check(flags *pflag.FlagSet) {
	want := map[string]string{"bool": "true or false", "duration": "a duration, such as 5s"}
	flags.VisitAll(func(f *pflag.Flag) {
		if want := want[f.Value.Type()]; want != "" {
			f.Value = checkedValue{f.Value, f.Name, want, &o.flagFaults}
		}
	})
}

// commandLineError returns an error of cobra for an invalid command line, on one line.
func commandLineError(err error) error {
	text, similar, suggests := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !strings.HasPrefix(text, "unknown command") {
		return err
	}
	if suggests {
		text += "; did you mean " + strings.Join(strings.Fields(similar), " or ") + "?"
	}
	return badInput("%s; kubectl sluice --help lists the commands", text)
}

// An inputError is an error for an invalid command line or an object that does not exist.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

func badInput(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }
