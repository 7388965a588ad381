package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-mesh/sluice/rules/cmd/internal/colour"
)

// printer writes the report of the demonstration, and counts unexpected results.
type printer struct {
	unexpected int

	out    io.Writer
	colour colour.Painter
	part   int
}

// newPrinter writes to f, in colour if its reader wants that.
func newPrinter(f *os.File) *printer {
	return &printer{out: f, colour: colour.For(f)}
}

func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// heading begins the next part.
func (p *printer) heading(format string, args ...any) {
	p.part++
	if p.part > 1 {
		p.line("")
	}
	p.line("%s",
		p.colour.Paint(colour.Bold, fmt.Sprintf("%d. ", p.part)+fmt.Sprintf(format, args...)))
}

// verdict writes a result that was to be as wanted; empty for what needs no further words.
func (p *printer) verdict(ok bool, what, wanted string) {
	if ok {
		p.line("%s %s", p.colour.Paint(colour.Green, "ok"), what)
		return
	}
	p.unexpected++
	p.line("%s %s (expected %s)", p.colour.Paint(colour.Red, "!!"), what, wanted)
}

// ruleset writes rules, the comments paler than the rest.
func (p *printer) ruleset(text string) {
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  ")
		if rule, comment, found := strings.Cut(line, ` comment "`); found {
			line = rule + "  " + p.colour.Paint(colour.Dim, "# "+strings.TrimSuffix(comment, `"`))
		}
		p.line("%s", strings.TrimRight("   "+line, " "))
	}
}
