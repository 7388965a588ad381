package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// The exit codes, which scripts rely on.
const (
	exitDone      = 0 // done, or equal
	exitDifferent = 1 // a difference, a bypass of the proxy or a problem; see help/exit-codes.txt
	// exitBadInput means that a flag, an argument or an environment variable is invalid, or names a
	// namespace or a pod that does not exist.
	exitBadInput    = 2
	exitSystemError = 3   // the kernel or the system refused, or lacks a feature
	exitInvalid     = 126 // validation failed; Istio's repair controller looks for this code
)

// failure is an error with its exit code.
type failure struct {
	code int
	err  error // nil if the command has already printed everything
}

func (f failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f failure) Unwrap() error { return f.err }

// systemError gives an error of the system or the kernel its exit code. It returns nil for nil.
func systemError(err error) error {
	if err == nil {
		return nil
	}
	return failure{exitSystemError, err}
}

// exitCode returns the exit code for an error. An error that is not a failure is bad input.
func exitCode(err error) int {
	var f failure
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &f):
		return f.code
	}
	return exitBadInput
}

// report prints the error to stderr, each of its lines as a separate error. A repeated line is
// printed once.
func (s *system) report(err error) {
	var f failure
	if err == nil || errors.As(err, &f) && f.err == nil {
		return
	}
	printed := map[string]bool{}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !printed[line] {
			s.notice(errorDocument{line}, line)
		}
		printed[line] = true
	}
}

// warn prints a warning to stderr.
func (s *system) warn(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	s.notice(warningDocument{message}, "warning: "+message)
}

// Objects on stderr with --output json, one per line.
type (
	errorDocument struct {
		Error string `json:"error"`
	}
	warningDocument struct {
		Warning string `json:"warning"`
	}
	progressDocument struct {
		Progress string `json:"progress"`
	}
)

func (errorDocument) kind() string    { return "Error" }
func (warningDocument) kind() string  { return "Warning" }
func (progressDocument) kind() string { return "Progress" }

// notice prints one line to stderr: the object with --output json, and the text otherwise.
func (s *system) notice(d document, line string) {
	if s.json {
		object, _ := encode(d) // no error is possible: the object contains only a string
		_, _ = s.stderr.Write(object)
		return
	}
	fmt.Fprintf(s.stderr, "rules: %s\n", rules.Printable(line))
}
