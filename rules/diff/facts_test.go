package diff_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules/diff"
)

var update = flag.Bool("update", false, "write FACTS.md")

// TestEachFactIsDocumented verifies that FACTS.md lists all facts of facts.go, and that the code
// refers to each fact where it relies on it.
func TestEachFactIsDocumented(t *testing.T) {
	var page strings.Builder
	page.WriteString(factsHead)
	source := sourceWithout(t, "facts.go")
	names := map[string]bool{}
	for _, f := range diff.Facts() {
		if f.Name() == "" || f.String() == "" || !strings.Contains(f.Source(), "/") ||
			names[f.Name()] {
			t.Errorf("fact %d: name %q, text %q, source %q, want a unique name, a text, and a "+
				"source with a path", f, f.Name(), f, f.Source())
		}
		names[f.Name()] = true
		if !strings.Contains(source, f.Name()) {
			t.Errorf("no code refers to %s", f.Name())
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", f.Name(), f, f.Source())
	}
	if *update {
		if err := os.WriteFile("FACTS.md", []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("FACTS.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page.String() {
		t.Error("FACTS.md is out of date: run go test ./rules/diff -run TestEachFactIsDocumented -update")
	}
}

const factsHead = `# Kernel behavior that does not depend on the rules

Decisions of package diff rely on these facts. Each fact is a constant of facts.go, and package
compat/kerneltest tests each fact with the kernel (TestKernelFacts,
TestKernelDropsPacketsThatDecisionsExclude). The last column names functions of Linux 6.18. This
page is generated from facts.go by
` + "`go test ./rules/diff -run TestEachFactIsDocumented -update`" + `.

| name | fact | kernel functions |
|---|---|---|
`

// sourceWithout returns the source of the package without its tests and the named file.
func sourceWithout(t *testing.T, file string) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		if name == file || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
