package save

import (
	"errors"
	"fmt"
)

// A SyntaxError is a syntax error at a position of a text. Parse and ParseIstioLog report several,
// joined by [errors.Join].
type SyntaxError struct {
	File string
	Line int // from 1
	// Column is the byte of the line at which the token begins, from 1; 0 in JSON, where the
	// position in the line is unknown.
	Column int
	// Token is the token at this position; empty at the end of a line.
	Token string
	// Want describes what is expected.
	Want string
}

// Error returns the position, the token and what is expected in one line.
func (e *SyntaxError) Error() string {
	place := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Column > 0 {
		place += fmt.Sprintf(":%d", e.Column)
	}
	if e.Token == "" {
		return fmt.Sprintf("%s: the line ends: want %s", place, e.Want)
	}
	token := e.Token
	if len(token) > maxToken {
		token = token[:maxToken] + "..."
	}
	return fmt.Sprintf("%s: %q: want %s", place, token, e.Want)
}

// maxToken is the maximum length of a token in an error, in bytes.
const maxToken = 200

// maxErrors is the maximum number of errors that are reported for a text.
const maxErrors = 20

// syntaxErrors are the first errors of a text in the order of its lines, and the number of further
// ones.
type syntaxErrors struct {
	list    []*SyntaxError
	omitted int
}

// err returns the joined errors, or nil.
func (s *syntaxErrors) err() error {
	var list []error
	for _, e := range s.list {
		list = append(list, e)
	}
	if s.omitted > 0 {
		list = append(list, fmt.Errorf("%s: %d more errors", s.list[0].File, s.omitted))
	}
	return errors.Join(list...)
}

// areMany reports whether further errors are only counted.
func (s *syntaxErrors) areMany() bool { return len(s.list) == maxErrors }

// add adds an error unless it is nil.
func (s *syntaxErrors) add(e *SyntaxError) {
	switch {
	case e == nil:
	case s.areMany():
		s.omitted++
	default:
		s.list = append(s.list, e)
	}
}

// addAll adds the errors of another part of the text.
func (s *syntaxErrors) addAll(other *syntaxErrors) {
	for _, e := range other.list {
		s.add(e)
	}
	s.omitted += other.omitted
}
