// Package readme extracts commands from READMEs, and updates generated blocks between two marker
// comments.
package readme

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A Block is a part of a README that a command writes. It is between two marker comments.
type Block struct {
	// Name identifies the block in the file. Command is the command that writes its content.
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

// ErrOutdated means that a block is not what its command would write.
var ErrOutdated = errors.New("a generated block is out of date")

// Check returns an error that wraps ErrOutdated if the block in a file has other content. The error
// contains the lines from the first to the last difference, of the block and of content.
func (b Block) Check(path, content string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, current, _, err := b.split(path, string(text))
	if err != nil || current == content {
		return err
	}
	old, desired := slices.Collect(strings.Lines(current)), slices.Collect(strings.Lines(content))
	for len(old) > 0 && len(desired) > 0 && old[0] == desired[0] {
		old, desired = old[1:], desired[1:]
	}
	for len(old) > 0 && len(desired) > 0 && old[len(old)-1] == desired[len(desired)-1] {
		old, desired = old[:len(old)-1], desired[:len(desired)-1]
	}
	var lines strings.Builder
	for _, l := range old {
		lines.WriteString("-" + l)
	}
	for _, l := range desired {
		lines.WriteString("+" + l)
	}
	return fmt.Errorf("%s: %s: %w, run %s:\n%s", path, b.Name, ErrOutdated, b.Command, &lines)
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
