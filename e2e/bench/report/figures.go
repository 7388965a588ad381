package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/readme"
)

// figuresBlock is the block of the README that contains the figures.
var figuresBlock = readme.Block{Name: "figures", Command: "make bench"}

// A figure is a row of the table in the README.
type figure struct {
	title string
	row   string
	// sluice is the entry of Sluice. other is the entry to compare with, or empty; the README calls
	// it otherTitle.
	sluice, other, otherTitle string
	quantities                []Quantity
}

// figures are the figures of the README.
var figures = []figure{
	{
		"rules of a new pod, in process", "fresh", "Sluice in process",
		"the same netlink messages, prepared", "the same netlink messages, encoded beforehand",
		[]Quantity{Wall},
	},
	{
		"rules of a new pod, as a process", "process", "rules apply", "istio-init, nftables",
		"istio-init in nftables mode",
		[]Quantity{Wall},
	},
	{
		"CNI ADD of a mesh pod", AddRow, WithAgent, "istio-cni, native nftables", "istio-cni",
		[]Quantity{Wall, Memory},
	},
	{
		"new connections per second, 10,000 excluded prefixes", "connect", "Sluice, 10000 prefixes",
		"istio-iptables, legacy, 10000 prefixes", "istio-init's iptables rules",
		[]Quantity{Rate},
	},
	{"`rules diff`, default parameters", "diff", "rules diff", "", "none", []Quantity{Wall}},
}

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

// figures renders the table. It returns an error if a figure was not measured.
func (r *Results) figures() (string, error) {
	version, _, _ := strings.Cut(r.Machine.Kernel, "-")
	if parts := strings.Split(version, "."); len(parts) > 2 {
		version = parts[0] + "." + parts[1]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Five figures from [RESULTS.md](e2e/bench/RESULTS.md), which `make bench` writes; "+
		"medians on %d cores, Linux %s:\n\n| task | Sluice | compared with |\n|---|---|---|\n",
		r.Machine.Cores, version)
	for _, f := range figures {
		row := r.Row(f.row)
		if row == nil {
			return "", fmt.Errorf("the row %q was not measured", f.row)
		}
		own, err := f.value(row, f.sluice)
		if err != nil {
			return "", err
		}
		other := f.otherTitle
		if f.other != "" {
			value, err := f.value(row, f.other)
			if err != nil {
				return "", err
			}
			other = value + ": " + other
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.title, own, other)
	}
	return b.String(), nil
}

// value returns the medians of the entry with the name.
func (f figure) value(row *Row, name string) (string, error) {
	entry := row.Entry(name)
	if entry == nil {
		return "", fmt.Errorf("%q of the row %q was not measured", name, f.row)
	}
	texts := make([]string, len(f.quantities))
	for i, q := range f.quantities {
		summary, ok := entry.Values[q]
		if !ok {
			return "", fmt.Errorf("%s of %q in the row %q was not measured", q.title(), name, f.row)
		}
		texts[i] = q.format(summary.Median)
		if q == Rate {
			texts[i] = thousands(int(math.Round(summary.Median)))
		}
	}
	return strings.Join(texts, ", "), nil
}
