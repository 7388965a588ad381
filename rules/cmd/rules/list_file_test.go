package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A list that is too long for an argument is read from a file.
func TestTenThousandPrefixesFromAFile(t *testing.T) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "10.%d.%d.0/25\n", i/250, i%250)
	}
	if text.Len() < 128<<10 {
		t.Fatalf("the list has %d bytes, want more than fit into an argument", text.Len())
	}
	path := filepath.Join(t.TempDir(), "prefixes")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, stderr := testSystem()
	out := new(bytes.Buffer)
	s.stdout = out
	if code := run(s, []string{"show", "-i", "*", "-x", "@" + path}); code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if n := strings.Count(out.String(), "/25"); n != 10_000 {
		t.Errorf("the ruleset has %d prefixes, want 10000", n)
	}
}

func TestFilesOfAListHaveALimitedTotalSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports")
	if err := os.WriteFile(path, bytes.Repeat([]byte("80\n"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s, stderr := testSystem()
	if code := run(s, []string{"show", "-b", "@" + path + ",@" + path}); code != exitBadInput ||
		!strings.Contains(stderr.String(), path+": the files of the list have more than 4 MiB in total") {
		t.Errorf("exit code %d, want %d: %s", code, exitBadInput, stderr)
	}
}

func TestALargeConfigurationIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.conflist")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4<<20+1); err != nil {
		t.Fatal(err)
	}
	pod := filepath.Join("..", "..", "..", "plugin", "decide", "testdata", "openshift.yaml")
	s, stderr := testSystem()
	if code := run(s, []string{"explain", "--pod", pod, "--config", path}); code != exitBadInput ||
		!strings.Contains(stderr.String(), "--config: "+path+": larger than 4 MiB") {
		t.Errorf("exit code %d, want %d: %s", code, exitBadInput, stderr)
	}
}
