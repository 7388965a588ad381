package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// A fullDisk is an output that cannot be written.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestFailedWritesAreErrors checks that a failed write is an error, even of a help text or a
// completion script.
func TestFailedWritesAreErrors(t *testing.T) {
	for _, args := range []string{
		"", "--help", "help", "help status", "status --help", "help json-schema", "--version",
		"completion", "completion bash", "check --help", "trace -h",
	} {
		t.Run(args, func(t *testing.T) {
			var errOut bytes.Buffer
			streams := genericiooptions.IOStreams{Out: fullDisk{}, ErrOut: &errOut}
			code := run(t.Context(), func() {}, streams, strings.Fields(args))
			if code != exitFailed || errOut.String() != "kubectl sluice: no space left on device\n" {
				t.Errorf("exit code %d, want %d and the error of the write\n%s", code, exitFailed, &errOut)
			}
		})
	}
}

// TestOutputIsPrintable checks that the status in JSON, and errors in JSON and as text, have no
// characters that control a terminal.
func TestOutputIsPrintable(t *testing.T) {
	const name = "\u009b31m\u202e"
	var out bytes.Buffer
	o := options{streams: genericiooptions.IOStreams{ErrOut: &out}}
	o.report(errors.New(name))
	o.asJSON = true
	o.report(errors.New(name))
	s := clusterStatus{Versions: map[string]int{name: 1}}
	if err := s.write(&out, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\u009b") || strings.Contains(out.String(), "\u202e") {
		t.Errorf("output %q, want printable text", &out)
	}
	if want := `\u009b31m\u202e`; strings.Count(out.String(), want) != 2 {
		t.Errorf("output %q, want %s in the error and in the status", &out, want)
	}
}
