package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// paper is what the account is written on. It counts what was not as expected.
type paper struct {
	unexpected int

	out    io.Writer
	colour bool
	part   int
}

// newPaper writes to f, in colour when that is a terminal and NO_COLOR (no-color.org) is not set.
func newPaper(f *os.File) *paper {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &paper{out: f, colour: err == nil && os.Getenv("NO_COLOR") == ""}
}

// The colours, as terminals know them.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (p *paper) paint(colour, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p *paper) line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// heading begins the next part.
func (p *paper) heading(format string, args ...any) {
	p.part++
	if p.part > 1 {
		p.line("")
	}
	p.line("%s", p.paint(bold, fmt.Sprintf("%d. ", p.part)+fmt.Sprintf(format, args...)))
}

// verdict writes a result that was to be as wanted; empty for what needs no further words.
func (p *paper) verdict(ok bool, what, wanted string) {
	if ok {
		p.line("%s %s", p.paint(green, "ok"), what)
		return
	}
	p.unexpected++
	p.line("%s %s (expected %s)", p.paint(red, "!!"), what, wanted)
}

// ruleset writes rules, the comments paler than the rest.
func (p *paper) ruleset(text string) {
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "  ")
		if rule, comment, found := strings.Cut(line, ` comment "`); found {
			line = rule + "  " + p.paint(dim, "# "+strings.TrimSuffix(comment, `"`))
		}
		p.line("%s", strings.TrimRight("   "+line, " "))
	}
}
