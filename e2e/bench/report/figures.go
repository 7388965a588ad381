package report

import (
	_ "embed" // for figures.yaml
	"fmt"
	"math"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/embedded"
	"github.com/sluice-mesh/sluice/e2e/readme"
)

// figuresBlock is the block of the README that contains the figures.
var figuresBlock = readme.Block{Name: "figures", Command: "make bench"}

// A figure is a row of the table in the README.
type figure struct {
	// Title is the text of the column "task".
	Title string
	// Row is the ID of the row of the results with the entries Sluice and Peer.
	Row string
	// Sluice is the name of Sluice's entry.
	Sluice string
	// Peer is the name of the entry to compare with. It is empty if there is none.
	Peer string
	// PeerTitle is the name of the peer in the README, or "none".
	PeerTitle  string
	Quantities []Quantity
}

//go:embed figures.yaml
var figuresYAML []byte

// figures are the figures of the README.
var figures = embedded.Decode[[]figure](figuresYAML)

// WriteFigures writes the figures into the README at path.
func WriteFigures(path string, r Results) error {
	table, err := r.figures()
	if err != nil {
		return err
	}
	return figuresBlock.Write(path, table)
}

// CheckFigures returns an error if the figures in the README at path do not match the results.
func CheckFigures(path string, r Results) error {
	table, err := r.figures()
	if err != nil {
		return err
	}
	return figuresBlock.Check(path, table)
}

// figures renders the table of the figures. It returns an error if a figure was not measured.
func (r *Results) figures() (string, error) {
	version, _, _ := strings.Cut(r.Machine.Kernel, "-")
	if numbers := strings.Split(version, "."); len(numbers) > 2 {
		version = numbers[0] + "." + numbers[1]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Five figures from [RESULTS.md](e2e/bench/RESULTS.md), "+
		"which `make bench` writes; medians on %d cores, Linux %s:\n\n"+
		"| task | Sluice | compared with |\n|---|---|---|\n",
		r.Machine.Cores, version)
	for _, f := range figures {
		row := r.Row(f.Row)
		if row == nil {
			return "", fmt.Errorf("the row %q was not measured", f.Row)
		}
		sluice, err := f.value(row, f.Sluice)
		if err != nil {
			return "", err
		}
		peer := f.PeerTitle
		if f.Peer != "" {
			value, err := f.value(row, f.Peer)
			if err != nil {
				return "", err
			}
			peer = value + ": " + peer
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.Title, sluice, peer)
	}
	return b.String(), nil
}

// value returns the medians of the figure's quantities, measured for the entry with the name.
func (f figure) value(row *Row, name string) (string, error) {
	entry := row.Entry(name)
	if entry == nil {
		return "", fmt.Errorf("%q of the row %q was not measured", name, f.Row)
	}
	texts := make([]string, len(f.Quantities))
	for i, q := range f.Quantities {
		summary, isMeasured := entry.Values[q]
		if !isMeasured {
			return "", fmt.Errorf("%s of %q in the row %q was not measured", q.title(), name,
				f.Row)
		}
		texts[i] = q.format(summary.Median)
		if q == Rate {
			texts[i] = thousands(int(math.Round(summary.Median)))
		}
	}
	return strings.Join(texts, ", "), nil
}
