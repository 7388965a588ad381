package config_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/config"
)

var update = flag.Bool("update", false, "write the table of fields into plugin/README.md")

// TestManualListsEveryField checks that the manual lists every field of the table in Go.
func TestManualListsEveryField(t *testing.T) {
	const file, begin, end = "../README.md", "<!-- fields: begin -->\n", "<!-- fields: end -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	table := "| field | value | default | meaning |\n|---|---|---|---|\n"
	for _, f := range config.Fields() {
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.Name, f.Want, f.Default, f.Meaning)
	}
	want := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s does not list the current fields: go test ./plugin/config -update writes them", file)
	}
}
