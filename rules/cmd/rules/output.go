package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// A document is an object that a command prints as JSON. It is a struct without the fields
// "version" and "kind", which encode adds. The published JSON Schema describes every kind.
type document interface{ kind() string }

// print writes a result to stdout, as text or JSON.
func (s *system) print(lines string, d document) error {
	if !s.json {
		return s.printText(lines)
	}
	line, err := encode(d)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, line, "", "  "); err != nil {
		return err
	}
	_, err = indented.WriteTo(s.stdout)
	return systemError(err)
}

// colorMark precedes the color codes of this command in a text for [system.printText]. It is
// random, so that no name in the text can contain it.
var colorMark = sync.OnceValue(rand.Text)

// paint returns the text in the color, for [system.printText].
func (s *system) paint(c color.Code, text string) string {
	if !s.color {
		return text
	}
	return colorMark() + color.Start(c) + text + colorMark() + color.End
}

// special matches marked color codes, and characters that may not be printable.
var special = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(colorMark() + `\x1b\[[0-9]+m|[^\n\t -~]+`)
})

// printText writes lines of text to stdout. It makes them printable except for the colors of
// [system.paint], because a text may contain a name that a program in the namespace or the author
// of a file has chosen. A newline in a name must have been replaced before: see [rules.Printable].
func (s *system) printText(lines string) error {
	lines = special().ReplaceAllStringFunc(lines, func(found string) string {
		if code, isOwn := strings.CutPrefix(found, colorMark()); isOwn {
			return code
		}
		return rules.Printable(found)
	})
	_, err := io.WriteString(s.stdout, lines)
	return systemError(err)
}

// printLine writes a document as one line of JSON, for commands that print several documents.
func (s *system) printLine(d document) error {
	line, err := encode(d)
	if err != nil {
		return err
	}
	_, err = s.stdout.Write(line)
	return systemError(err)
}

// encode returns the document as one line of JSON. It escapes characters that are not printable,
// but not <, > and &.
func encode(d document) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"version":%d,"kind":%q`, jsonVersion, d.kind())
	fields := line.Bytes()[len("{"):]
	if fields[0] != '}' {
		head += ","
	}
	return rules.PrintableJSON(append([]byte(head), fields...)), nil
}

// milliseconds returns a duration in milliseconds, rounded down to whole microseconds.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// count returns a number with a noun, such as "2 problems".
func count(n int, noun string) string { return countOf(n, noun, noun+"s") }

// countOf is count for a noun with an irregular plural.
func countOf(n int, noun, plural string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, plural)
}
