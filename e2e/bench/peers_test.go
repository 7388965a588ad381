package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/bench"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// BenchmarkPeers measures all rows, prints them, and writes results.json and the files rendered
// from it. "make bench-peers" builds the programs and runs the benchmark once. SLUICE_ROWS is a
// regular expression that selects rows by id; if it is set, no files are written.
func BenchmarkPeers(b *testing.B) {
	netnstest.RequireRoot(b)
	rounds := 30
	if text := os.Getenv("SLUICE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			b.Fatalf("SLUICE_ROUNDS=%q: want an integer, 1 or more", text)
		}
	}
	selected, err := regexp.Compile(os.Getenv("SLUICE_ROWS"))
	if err != nil {
		b.Fatalf("SLUICE_ROWS: %v", err)
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		b.Fatal(err)
	}
	tools := bench.Tools{Dir: b.TempDir(), Bin: bin}
	env := newPluginEnv(b, tools)
	for b.Loop() {
		results := report.Results{
			Machine: bench.Machine(), Programs: tools.Programs(), Rounds: rounds, Pod: env.size,
		}
		for _, row := range slices.Concat(bench.Rows(tools), env.rows(), agentRows(b, tools)) {
			if !selected.MatchString(row.ID) {
				continue
			}
			measured := bench.Measure(row, rounds)
			fmt.Printf("\n## %s: %s\n\n%s", row.Topic, row.Name, report.Table(measured))
			results.Rows = append(results.Rows, measured)
		}
		if selected.String() != "" {
			continue
		}
		if old, err := report.Read("."); err == nil {
			results.Soak, results.Scale = old.Soak, old.Scale // measured by other commands
		}
		if err := report.Write(".", results); err != nil {
			b.Fatal(err)
		}
		if err := report.WriteFigures(frontPage, results); err != nil {
			b.Fatal(err)
		}
	}
}

// plots returns the names of the committed plots.
func plots(tb testing.TB) []string {
	names, err := filepath.Glob("*.svg")
	if err != nil {
		tb.Fatal(err)
	}
	return names
}

// frontPage is the README that contains the figures.
const frontPage = "../../README.md"

// The committed page, its plots and the figures of the README match results.json.
func TestRenderedFilesMatchResults(t *testing.T) {
	results, err := report.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SLUICE_RENDER") != "" {
		if err := report.Write(".", results); err != nil {
			t.Fatal(err)
		}
		if err := report.WriteFigures(frontPage, results); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.CheckFigures(frontPage, results); err != nil {
		t.Error(err)
	}
	files, err := report.Files(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range plots(t) {
		if files[name] == nil {
			t.Errorf("%s belongs to no topic: delete it", name)
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s does not match %s: run \"make bench-peers\" to measure and write both, or "+
				"SLUICE_RENDER=1 go test to render it again", name, report.ResultsFile)
		}
	}
}
