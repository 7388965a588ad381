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

// BenchmarkPeers measures all rows, prints them, and writes results.json and what is rendered from
// it. "make bench-peers" builds the programs and runs it once. With SLUICE_ROWS, a regular
// expression for the ids of rows, only these are measured, and nothing is written.
func BenchmarkPeers(b *testing.B) {
	netnstest.RequireRoot(b)
	rounds := 30
	if text := os.Getenv("SLUICE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			b.Fatalf("SLUICE_ROUNDS=%q: want a number from 1 on", text)
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
	w := newWorld(b, tools)
	for b.Loop() {
		results := report.Results{
			Machine: bench.Machine(), Programs: tools.Programs(), Rounds: rounds, Pod: w.size,
		}
		for _, row := range slices.Concat(bench.Rows(tools), w.rows(), agentRows(b, tools)) {
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
			results.Soak, results.Scale = old.Soak, old.Scale // other runs'
		}
		if err := report.Write(".", results); err != nil {
			b.Fatal(err)
		}
		if err := report.WriteFigures(frontPage, results); err != nil {
			b.Fatal(err)
		}
	}
}

// plots are the files of plots that are there.
func plots(tb testing.TB) []string {
	names, err := filepath.Glob("*.svg")
	if err != nil {
		tb.Fatal(err)
	}
	return names
}

// frontPage is the page with the figures.
const frontPage = "../../README.md"

// The committed page, its plots and the figures of the front page are those of the results.
func TestResultsAreRendered(t *testing.T) {
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
			t.Errorf("%s is of no topic any more", name)
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what %s says: \"make bench-peers\" measures and writes both, SLUICE_RENDER=1 go test renders anew", name, report.ResultsFile)
		}
	}
}
