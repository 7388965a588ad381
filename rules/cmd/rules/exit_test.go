package main

import (
	"errors"
	"testing"
)

// Two backends can fail for the same reason, such as a namespace that the process may not enter.
func TestAnErrorIsReportedOnce(t *testing.T) {
	s, stderr := testSystem()
	denied := errors.New("not permitted")
	s.report(errors.Join(denied, errors.New("busy"), denied))
	if want := "rules: not permitted\nrules: busy\n"; stderr.String() != want {
		t.Errorf("reported %q, want %q", stderr.String(), want)
	}
}

// A help text that cannot be written is an error, like any other output.
func TestHelpReportsAWriteError(t *testing.T) {
	for _, args := range [][]string{
		{"--help"},
		{"--help-all"},
		{"help", "json-schema"},
		{"help", "check"},
		{"check", "--help"},
		{"check", "--help-all"},
		{},
		{"help"},
	} {
		s, stderr := testSystem()
		s.stdout = fullDisk{}
		if code := run(s, args); code != exitSystemError ||
			stderr.String() != "rules: no space left on device\n" {
			t.Errorf("%q: exit code %d, want %d and the error of the write\n%s", args, code, exitSystemError,
				stderr)
		}
	}
}
