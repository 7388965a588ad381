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
