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
