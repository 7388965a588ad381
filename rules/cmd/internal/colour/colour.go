// Package colour paints the text that commands write to a terminal.
package colour

import (
	"os"

	"golang.org/x/sys/unix"
)

// A Code is what terminals know a colour by (SGR, in ECMA-48).
type Code string

// The colours that commands use; as such count also the weights of a font.
const (
	Bold   Code = "1"
	Dim    Code = "2"
	Red    Code = "31"
	Green  Code = "32"
	Yellow Code = "33"
)

// A Painter reports whether text is painted; the zero value leaves it as it is.
type Painter bool

// For paints what is written to the file if that is a terminal whose user has not declined colours:
// by NO_COLOR (https://no-color.org), or by a TERM that knows none.
func For(f *os.File) Painter {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Paint returns the text in the colour.
func (p Painter) Paint(c Code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
