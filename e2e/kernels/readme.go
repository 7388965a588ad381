package kernels

import (
	"errors"
	"fmt"
	"strings"
)

// The lines of e2e/README.md before and after the table.
const (
	begin = "<!-- kernels: written by make e2e-kernels UPDATE=1 -->\n"
	end   = "<!-- kernels: end -->\n"
)

// Embed returns the text with the table inserted.
func Embed(readme, table string) (string, error) {
	before, rest, ok := strings.Cut(readme, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("no place for the table: want the lines %q and %q",
			strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + table + end + after, nil
}

// ErrDifferent reports that the table in e2e/README.md differs from the results.
var ErrDifferent = errors.New("the table of kernels in e2e/README.md is not what was measured")

// Compare returns ErrDifferent, with the lines, if the text does not contain the table.
func Compare(readme, table string) error {
	want, err := Embed(readme, table)
	if err != nil || want == readme {
		return err
	}
	_, rest, _ := strings.Cut(readme, begin)
	has, _, _ := strings.Cut(rest, end)
	var text strings.Builder
	for _, side := range []struct{ sign, lines, other string }{
		{"-", has, table}, {"+", table, has},
	} {
		for line := range strings.Lines(side.lines) {
			if !strings.Contains(side.other, line) {
				text.WriteString(side.sign + line)
			}
		}
	}
	return fmt.Errorf("%w (make e2e-kernels UPDATE=1 writes it):\n%s", ErrDifferent, text.String())
}
