// Package readme extracts commands from READMEs, and updates generated blocks between two marker
// comments.
package readme

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// A Block is a generated block of a file.
type Block struct {
	// Name is the name of the block. Command is the command that writes its content.
	Name, Command string
}

// begin returns the marker before the block.
func (b Block) begin() string {
	return fmt.Sprintf("<!-- %s: written by %s -->\n", b.Name, b.Command)
}

// end returns the marker after the block.
func (b Block) end() string { return fmt.Sprintf("<!-- %s: end -->\n", b.Name) }

// Write replaces the content of the block in a file.
func (b Block) Write(path, content string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, after, err := b.split(path, string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+b.begin()+content+b.end()+after), 0o644)
}

// ErrDifferent reports that a block is out of date.
var ErrDifferent = errors.New("a generated block is out of date")

// Check returns an error that wraps ErrDifferent if the block in a file has other content. The
// error contains the lines that only the block or only content has.
func (b Block) Check(path, content string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, current, _, err := b.split(path, string(text))
	if err != nil || current == content {
		return err
	}
	var differing strings.Builder
	for _, side := range []struct{ sign, text, other string }{
		{"-", current, content}, {"+", content, current},
	} {
		for line := range strings.Lines(side.text) {
			if !strings.Contains(side.other, line) {
				differing.WriteString(side.sign + line)
			}
		}
	}
	return fmt.Errorf("%s: %s: %w, run %s:\n%s", path, b.Name, ErrDifferent, b.Command,
		differing.String())
}

// split returns the text before the block, its content and the text after it.
func (b Block) split(path, text string) (before, content, after string, err error) {
	before, rest, hasBegin := strings.Cut(text, b.begin())
	content, after, hasEnd := strings.Cut(rest, b.end())
	if !hasBegin || !hasEnd {
		return "", "", "", fmt.Errorf("%s: no markers of the block %s: want the lines %q and %q",
			path, b.Name, strings.TrimSpace(b.begin()), strings.TrimSpace(b.end()))
	}
	return before, content, after, nil
}
