package readme_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/readme"
)

var block = readme.Block{Name: "figures", Command: "make bench"}

// file writes a text to a new file, and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const text = "before\n<!-- figures: written by make bench -->\n| a |\n| b |\n<!-- figures: end -->\nafter\n"

func TestCheckAndWrite(t *testing.T) {
	path := file(t, text)
	if err := block.Check(path, "| a |\n| b |\n"); err != nil {
		t.Error(err)
	}
	err := block.Check(path, "| a |\n| c |\n")
	if !errors.Is(err, readme.ErrOutdated) ||
		!strings.HasSuffix(err.Error(), "run make bench:\n-| b |\n+| c |\n") {
		t.Errorf("check of other content: error %v, want ErrOutdated with the differing lines", err)
	}
	if err := block.Write(path, "| c |\n"); err != nil {
		t.Fatal(err)
	}
	changed, err := os.ReadFile(path)
	if want := strings.Replace(text, "| a |\n| b |\n", "| c |\n", 1); err != nil || string(changed) != want {
		t.Errorf("file after Write: error %v\n%s\nwant\n%s", err, changed, want)
	}
}

func TestCheckListsDifferingLines(t *testing.T) {
	for _, row := range []struct{ name, content, want string }{
		{"a line that ends like another", "b |\n| b |\n", "-| a |\n+b |\n"},
		{"other order", "| b |\n| a |\n", "-| a |\n-| b |\n+| b |\n+| a |\n"},
		{"missing repetition", "| a |\n| b |\n| b |\n", "+| b |\n"},
		{"missing line", "| b |\n", "-| a |\n"},
		{"no content", "", "-| a |\n-| b |\n"},
	} {
		err := block.Check(file(t, text), row.content)
		if err == nil || !strings.HasSuffix(err.Error(), "run make bench:\n"+row.want) {
			t.Errorf("%s: error %v, want the lines\n%s", row.name, err, row.want)
		}
	}
}

func TestBlockWithoutMarkers(t *testing.T) {
	for _, text := range []string{
		"", "<!-- figures: written by make bench -->\n| a |\n", "| a |\n<!-- figures: end -->\n",
	} {
		path := file(t, text)
		for _, err := range []error{block.Check(path, "| a |\n"), block.Write(path, "| a |\n")} {
			if err == nil || !strings.Contains(err.Error(), "no markers of the block figures") ||
				errors.Is(err, readme.ErrOutdated) {
				t.Errorf("%q: error %v, want one about missing markers", text, err)
			}
		}
	}
}
