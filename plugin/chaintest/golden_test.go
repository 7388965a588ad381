package chaintest_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the texts in testdata that differ")

// goldenFile is a file in testdata with texts, each after a line "# NAME", in the order of their
// names.
type goldenFile struct {
	mu     sync.Mutex
	file   string
	byName map[string]string
}

// openGolden reads the file. With -update the file is written at the end of the test.
func openGolden(t testing.TB, name string) *goldenFile {
	t.Helper()
	g := &goldenFile{file: filepath.Join("testdata", name), byName: map[string]string{}}
	content, err := os.ReadFile(g.file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq("\n"+string(content), "\n# ") {
		if name, text, found := strings.Cut(section, "\n"); found && name != "" {
			g.byName[name] = text
		}
	}
	if *update {
		t.Cleanup(func() { g.write(t) })
	}
	return g
}

// check compares got with the text of the name in the file.
func (g *goldenFile) check(t testing.TB, name, got string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if *update {
		g.byName[name] = got
		return
	}
	if diff := cmp.Diff(strings.TrimSpace(g.byName[name]), strings.TrimSpace(got)); diff != "" {
		t.Errorf("%s, text %q (-want +got; -update rewrites the file):\n%s", g.file, name, diff)
	}
}

func (g *goldenFile) write(t testing.TB) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(g.byName)) {
		fmt.Fprintf(&b, "# %s\n%s\n\n", name, strings.TrimSpace(g.byName[name]))
	}
	if err := os.WriteFile(g.file, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
