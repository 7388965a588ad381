package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// printer prints the report of the demonstration, and counts unexpected results.
type printer struct {
	unexpected int // number of unexpected results

	out   io.Writer
	color color.Painter
	part  int // number of the current part
}

// newPrinter returns a printer to f, with colors if f is a terminal that supports them.
func newPrinter(f *os.File) *printer {
	return &printer{out: f, color: color.For(f)}
}

// printLine prints a line.
func (p *printer) printLine(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// printHeading starts the next part.
func (p *printer) printHeading(format string, args ...any) {
	p.part++
	if p.part > 1 {
		p.printLine("")
	}
	p.printLine("%s",
		p.color.Paint(color.Bold, fmt.Sprintf("%d. ", p.part)+fmt.Sprintf(format, args...)))
}

// printResult prints a result and, if ok is false, the expected result.
func (p *printer) printResult(ok bool, description, expected string) {
	if ok {
		p.printLine("%s %s", p.color.Paint(color.Green, "ok"), description)
		return
	}
	p.unexpected++
	p.printLine("%s %s (expected %s)", p.color.Paint(color.Red, "!!"), description, expected)
}

// printRuleset prints rules, with dimmed comments.
func (p *printer) printRuleset(text string) {
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  ")
		if rule, comment, found := strings.Cut(line, ` comment "`); found {
			line = rule + "  " + p.color.Paint(color.Dim, "# "+strings.TrimSuffix(comment, `"`))
		}
		p.printLine("%s", strings.TrimRight("   "+line, " "))
	}
}
