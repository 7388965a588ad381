// Package color colors the text that commands write to a terminal.
package color

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Code is a color code of terminals (SGR, in ECMA-48).
type Code string

// The colors and styles that commands use.
const (
	Bold   Code = "1"
	Dim    Code = "2"
	Red    Code = "31"
	Green  Code = "32"
	Yellow Code = "33"
)

// A Painter colors text if it is true. The zero value leaves text unchanged.
type Painter bool

// For returns a painter for a file. It paints only if the file is a terminal that supports colors,
// and NO_COLOR (https://no-color.org) is not set.
func For(f *os.File) Painter {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Paint returns the text in the color.
func (p Painter) Paint(c Code, text string) string {
	if !p {
		return text
	}
	return Start(c) + text + End
}

// Start returns the text that starts the color on a terminal.
func Start(c Code) string { return "\x1b[" + string(c) + "m" }

// End ends all colors and styles.
const End = "\x1b[0m"
