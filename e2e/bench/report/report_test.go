package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

var update = flag.Bool("update", false, "update the golden files")

// example returns results that produce every section of the page, except those of the soak test and
// of the load on the API server.
func example() report.Results {
	around := func(median float64) report.Summary {
		return report.Summary{
			Median: median, FirstQuartile: median * 0.9, ThirdQuartile: median * 1.25, Minimum: median * 0.8,
			Samples: 30,
		}
	}
	once := func(value float64) report.Summary { return report.Summarize([]float64{value}) }
	process := func(
		name string, kind report.Kind, wall, cpu, memory, executed float64,
	) report.Entry {
		return report.Entry{Name: name, Kind: kind, Values: map[report.Quantity]report.Summary{
			report.Wall: around(wall), report.CPU: around(cpu), report.Memory: once(memory),
			report.Executed: once(executed),
		}}
	}
	rate := func(name string, kind report.Kind, value float64) report.Entry {
		return report.Entry{
			Name: name, Kind: kind,
			Values: map[report.Quantity]report.Summary{report.Rate: around(value)},
		}
	}
	return report.Results{
		Machine: report.Machine{
			CPU: "AMD EPYC", Cores: 2, Memory: 24e9, Kernel: "6.18.44", Go: "go1.26.8",
		},
		Programs: []report.Program{{"sluice-cni", "v1", 9.5e6}, {"nft", "nftables v1.0.6", 0}},
		Rounds:   30, Pod: report.Pod{Bytes: 7000},
		Rows: []report.Row{
			{
				ID: report.AddRow, Topic: "CNI plugin", Name: "ADD of a mesh pod",
				Plotted: report.Wall,
				Entries: []report.Entry{
					process("empty <Go> program", report.Floor, 1e-3, 1e-3, 1.7e6, 0),
					process(report.WithAgent, report.Sluice, 7e-3, 6e-3, 12e6, 0),
					process(report.WithoutAgent, report.Sluice, 8e-3, 7e-3, 12e6, 0),
					process("istio-cni, nft", report.Peer, 50e-3, 40e-3, 64e6, 3),
					process("istio-cni, iptables", report.Peer, 80e-3, 60e-3, 65e6, 22),
				},
				Goals: []report.Goal{
					{Entry: report.WithAgent, Quantity: report.Wall, Factor: 1.0 / 8},
					{Entry: report.WithAgent, Quantity: report.Memory, Factor: 1.0 / 4},
					{
						Entry: report.WithAgent, Quantity: report.Wall,
						Others: []string{"empty <Go> program"}, Factor: 7,
					},
					{Entry: report.WithAgent, Quantity: report.Executed, Zero: true},
					{Entry: report.WithAgent, Quantity: report.Wall, Limit: 5e-3},
					{
						Entry: report.WithAgent, Quantity: report.Wall, Others: []string{"left out"},
						Factor: 1,
					},
					{Entry: "left out", Quantity: report.Wall, Limit: 1},
				},
				Omitted: []report.Omission{
					{"istio-cni, legacy", "no xtables-legacy-multi:\n\tnot installed"},
					{"istio-cni, wordy", "exit status 1: " + strings.Repeat("10.0.0.0/8–", 100) +
						" nft is missing"},
				},
				Note: "What has to be known.",
			},
			{
				ID: report.DelRow, Topic: "CNI plugin", Name: "DEL of a mesh pod",
				Plotted: report.Wall, Rounds: 10,
				Entries: []report.Entry{
					process(report.WithAgent, report.Sluice, 4e-3, 4e-3, 11e6, 0),
					process(report.WithoutAgent, report.Sluice, 4e-3, 4e-3, 11e6, 0),
					process("istio-cni, nft", report.Peer, 30e-3, 28e-3, 64e6, 0),
				},
			},
			{
				ID: "connect", Topic: "New connections", Name: "redirected", Plotted: report.Rate,
				Entries: []report.Entry{
					rate("no rules", report.Floor, 31e3), rate("Sluice", report.Sluice, 26.9e3),
					rate("legacy", report.Peer, 27e3),
				},
				Goals: []report.Goal{
					{Entry: "Sluice", Quantity: report.Rate, Others: []string{"legacy"}, Factor: 0.97},
					{Entry: "Sluice", Quantity: report.Rate, Others: []string{"no rules"}, Factor: 0.97},
				},
			},
			{
				ID: "none", Topic: "Nothing", Name: "that runs here",
				Omitted: []report.Omission{{"", "the kernel has no nf_tables"}},
			},
		},
	}
}

// The page and the plots match the golden files in testdata. "go test -update" updates them.
func TestPageAndPlots(t *testing.T) {
	files := map[string][]byte{"RESULTS.md": report.Markdown(example())}
	for _, p := range report.Plots(example()) {
		files[p.Name] = p.SVG
	}
	if len(files) != 3 {
		t.Errorf("%d files, want a page and two plots", len(files))
	}
	for name, got := range files {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs from the golden file (-want +got)\n%s", name, diff)
		}
	}
}

// Decode returns the results that were encoded.
func TestDecodeReturnsEncodedResults(t *testing.T) {
	want := example()
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded results (-want +got)\n%s", diff)
	}
	if _, err := report.Decode([]byte("{")); err == nil {
		t.Error("Decode of a truncated file: no error, want an error")
	}
}

// Image viewers reject SVG files that are not well-formed XML.
func TestPlotsAreWellFormedAndReferenced(t *testing.T) {
	page := report.Markdown(example())
	for _, p := range report.Plots(example()) {
		if !bytes.Contains(page, []byte("]("+p.Name+")")) {
			t.Errorf("the page does not refer to %s", p.Name)
		}
		decoder := xml.NewDecoder(bytes.NewReader(p.SVG))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				break
			}
		}
	}
}

func TestSummarize(t *testing.T) {
	for _, row := range []struct {
		name   string
		values []float64
		want   report.Summary
	}{
		{"no values", nil, report.Summary{}},
		{"one value is every quantile", []float64{3}, report.Summary{3, 3, 3, 3, 1}},
		{"values are sorted", []float64{5, 1, 4, 2, 3}, report.Summary{3, 2, 4, 1, 5}},
		{
			"an outlier does not change the median",
			[]float64{1, 2, 3, 4, 1000},
			report.Summary{3, 2, 4, 1, 5},
		},
	} {
		if diff := cmp.Diff(row.want, report.Summarize(row.values)); diff != "" {
			t.Errorf("%s: summary (-want +got)\n%s", row.name, diff)
		}
	}
}

// The page of an empty run has no plots, and no sections about measurements that were not made.
func TestEmptyResultsAreRendered(t *testing.T) {
	page := string(report.Markdown(report.Results{}))
	for _, section := range []string{
		"## Extrapolation to nodes and clusters", "## Load of the agents", "## Soak test",
	} {
		if strings.Contains(page, section) {
			t.Errorf("section %q in the page of an empty run, want none:\n%s", section, page)
		}
	}
	if plots := report.Plots(report.Results{}); len(plots) > 0 {
		t.Errorf("plots of an empty run: %v, want none", plots)
	}
}
