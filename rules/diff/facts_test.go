package diff_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEachFactIsDocumented verifies that each row of FACTS.md has a unique name, a text, and a
// source with a path; that the code refers to each fact where it relies on it; and that each
// constant of facts.go has the text of its row.
func TestEachFactIsDocumented(t *testing.T) {
	page, err := os.ReadFile("FACTS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "\n|---|---|---|\n")
	row := regexp.MustCompile(`^\| ([A-Z]\w+) \| (\S[^|]*) \| (\S[^|]*/[^|]*) \|\n$`)
	source := sourceWithout(t, "facts.go")
	texts := map[string]string{}
	for line := range strings.Lines(rows) {
		fact := row.FindStringSubmatch(line)
		if fact == nil {
			t.Errorf("row %q of FACTS.md, want | name | fact | kernel functions in path |", line)
			continue
		}
		name := fact[1]
		if texts[name] != "" {
			t.Errorf("FACTS.md lists %s twice", name)
		}
		texts[name] = fact[2]
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(source) {
			t.Errorf("no code refers to %s", name)
		}
	}
	for name, text := range stringConstants(t, "facts.go") {
		if texts[name] != text {
			t.Errorf("%s is %q in facts.go and %q in FACTS.md", name, text, texts[name])
		}
	}
}

// stringConstants returns the values of the string constants of a file without imports.
func stringConstants(t *testing.T, name string) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("diff", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok {
			values[name] = constant.StringVal(c.Val())
		}
	}
	return values
}

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
