package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFailedPackingLeavesNoArchive(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ reason, ref, argument, want string }{
		{"no architecture", "a/b:c", dir, "want ARCHITECTURE=DIRECTORY"},
		{"no tag", "a/b", "amd64=" + dir, "want registry/name:tag"},
		{"not a program", "a/b:c", "amd64=" + dir, "script: not a program"},
		{"no directory", "a/b:c", "amd64=" + dir + "/none", "no such file"},
	} {
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := run(c.ref, out, []string{c.argument}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.reason, err, c.want)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: stat of the archive: error %v, want fs.ErrNotExist", c.reason, err)
		}
	}
}
