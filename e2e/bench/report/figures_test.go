package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// WriteFigures renders the results, and returns an error if a figure was not measured.
func TestFiguresAreWrittenToTheReadme(t *testing.T) {
	entry := func(name string, values map[report.Quantity]float64) report.Entry {
		e := report.Entry{Name: name, Values: map[report.Quantity]report.Summary{}}
		for q, v := range values {
			e.Values[q] = report.Summary{Median: v}
		}
		return e
	}
	wall := func(seconds float64) map[report.Quantity]float64 {
		return map[report.Quantity]float64{report.Wall: seconds, report.Memory: 1e6}
	}
	rate := func(n float64) map[report.Quantity]float64 {
		return map[report.Quantity]float64{report.Rate: n}
	}
	results := report.Results{
		Machine: report.Machine{Cores: 2, Kernel: "6.18.44-x"},
		Rows: []report.Row{
			{ID: "fresh", Entries: []report.Entry{
				entry("Sluice in process", wall(4e-4)), entry("the same netlink messages, prepared", wall(3e-4)),
			}},
			{ID: "process", Entries: []report.Entry{
				entry("rules apply", wall(2e-3)), entry("istio-init, nftables", wall(34e-3)),
			}},
			{ID: report.AddRow, Entries: []report.Entry{
				entry(report.WithAgent, wall(5e-3)), entry("istio-cni, native nftables", wall(57e-3)),
			}},
			{ID: "connect", Entries: []report.Entry{
				entry("Sluice, 10000 prefixes", rate(26607)),
				entry("istio-iptables, legacy, 10000 prefixes", rate(16053)),
			}},
			{ID: "diff", Entries: []report.Entry{entry("rules diff", wall(25e-4))}},
		},
	}
	path := filepath.Join(t.TempDir(), "README.md")
	const place = "<!-- figures: written by make bench -->\n<!-- figures: end -->\n"
	if err := os.WriteFile(path, []byte(place), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := report.CheckFigures(path, results); err == nil {
		t.Error("CheckFigures of a page without figures: no error, want an error")
	}
	if err := report.WriteFigures(path, results); err != nil {
		t.Fatal(err)
	}
	if err := report.CheckFigures(path, results); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"medians on 2 cores, Linux 6.18:",
		"| rules of a new pod, in a running process | 400 µs | 300 µs: the same netlink messages, encoded beforehand |",
		"| CNI ADD of a mesh pod | 5.00 ms, 1.00 MB | 57.0 ms, 1.00 MB: istio-cni |",
		"| new connections per second, 10,000 excluded prefixes | 26,607 | 16,053: istio-init's iptables rules |",
		"| `rules diff`, default parameters | 2.50 ms | none |",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	results.Rows = results.Rows[:4]
	if err := report.WriteFigures(path, results); err == nil ||
		err.Error() != `the row "diff" was not measured` {
		t.Errorf("without the row diff: error %v, want an error that names the row", err)
	}
}
