package save_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TestParseRulesOfPrograms parses the rules of the programs that testdata/programs/README.md lists.
// The golden file lists the unknown matches and actions.
func TestParseRulesOfPrograms(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "programs", "*.save"))
	if err != nil {
		t.Fatal(err)
	}
	got := new(strings.Builder)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := save.Parse(familyOfFile(file), file, bytes.NewReader(data))
		if err != nil {
			t.Error(err)
		}
		got.WriteString(filepath.Base(file) + "\n" + rulestest.Unknowns(tables) + "\n")
	}
	golden := filepath.Join("testdata", "programs.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s differs, rewrite it with -update (-want +got):\n%s", golden, diff)
	}
}
