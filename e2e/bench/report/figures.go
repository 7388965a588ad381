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
	// title is the text of the column "task".
	title string
	// resultRow is the ID of the row of the results with the entries sluice and peer.
	resultRow string
	// sluice is the name of Sluice's entry.
	sluice string
	// peer is the name of the entry to compare with. It is empty if there is none.
	peer string
	// peerTitle is the name of the peer in the README, or "none".
	peerTitle  string
	quantities []Quantity
}

// figures are the figures of the README.
var figures = []figure{
	{
		title: "rules of a new pod, in a running process", resultRow: "fresh", sluice: "Sluice in process",
		peer:       "the same netlink messages, prepared",
		peerTitle:  "the same netlink messages, encoded beforehand",
		quantities: []Quantity{Wall},
	},
	{
		title: "rules of a new pod, with a new process", resultRow: "process", sluice: "rules apply",
		peer: "istio-init, nftables", peerTitle: "istio-init in nftables mode",
		quantities: []Quantity{Wall},
	},
	{
		title: "CNI ADD of a mesh pod", resultRow: AddRow, sluice: WithAgent,
		peer: "istio-cni, native nftables", peerTitle: "istio-cni",
		quantities: []Quantity{Wall, Memory},
	},
	{
		title:     "new connections per second, 10,000 excluded prefixes",
		resultRow: "connect", sluice: "Sluice, 10000 prefixes",
		peer:       "istio-iptables, legacy, 10000 prefixes",
		peerTitle:  "istio-init's iptables rules",
		quantities: []Quantity{Rate},
	},
	{
		title: "`rules diff`, default parameters", resultRow: "diff", sluice: "rules diff",
		peerTitle: "none", quantities: []Quantity{Wall},
	},
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
		row := r.Row(f.resultRow)
		if row == nil {
			return "", fmt.Errorf("the row %q was not measured", f.resultRow)
		}
		sluice, err := f.value(row, f.sluice)
		if err != nil {
			return "", err
		}
		peer := f.peerTitle
		if f.peer != "" {
			value, err := f.value(row, f.peer)
			if err != nil {
				return "", err
			}
			peer = value + ": " + peer
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.title, sluice, peer)
	}
	return b.String(), nil
}

// value returns the medians of the figure's quantities, measured for the entry with the name.
func (f figure) value(row *Row, name string) (string, error) {
	entry := row.Entry(name)
	if entry == nil {
		return "", fmt.Errorf("%q of the row %q was not measured", name, f.resultRow)
	}
	texts := make([]string, len(f.quantities))
	for i, q := range f.quantities {
		summary, isMeasured := entry.Values[q]
		if !isMeasured {
			return "", fmt.Errorf("%s of %q in the row %q was not measured", q.title(), name,
				f.resultRow)
		}
		texts[i] = q.format(summary.Median)
		if q == Rate {
			texts[i] = thousands(int(math.Round(summary.Median)))
		}
	}
	return strings.Join(texts, ", "), nil
}
