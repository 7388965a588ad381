package save

import (
	"errors"
	"fmt"
)

// A SyntaxError is a syntax error at a position of a text. Parse and ParseIstioLog may return
// several, joined by [errors.Join].
type SyntaxError struct {
	File string
	Line int // from 1
	// Column is the byte of the line at which the token begins, from 1. It is 0 in JSON, where the
	// position in the line is unknown.
	Column int
	// Token is the token at this position. It is empty at the end of a line.
	Token string
	// Want describes the expected text.
	Want string
}

// Error returns the position, the token and the expected text in one line.
func (e *SyntaxError) Error() string {
	position := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Column > 0 {
		position += fmt.Sprintf(":%d", e.Column)
	}
	if e.Token == "" {
		return fmt.Sprintf("%s: the line ends: want %s", position, e.Want)
	}
	token := e.Token
	if len(token) > maxToken {
		token = token[:maxToken] + "..."
	}
	return fmt.Sprintf("%s: %q: want %s", position, token, e.Want)
}

// maxToken is the maximum length of a token in an error, in bytes.
const maxToken = 200

// maxErrors is the maximum number of errors that are reported for a text.
const maxErrors = 20

// syntaxErrors contains the first errors of a text in the order of its lines, and the number of
// further errors.
type syntaxErrors struct {
	list    []*SyntaxError
	omitted int
}

// err returns the joined errors, or nil.
func (s *syntaxErrors) err() error {
	var errs []error
	for _, e := range s.list {
		errs = append(errs, e)
	}
	if s.omitted > 0 {
		errs = append(errs, fmt.Errorf("%s: %d more errors", s.list[0].File, s.omitted))
	}
	return errors.Join(errs...)
}

// isFull reports whether further errors are only counted.
func (s *syntaxErrors) isFull() bool { return len(s.list) == maxErrors }

// add adds an error unless it is nil.
func (s *syntaxErrors) add(e *SyntaxError) {
	switch {
	case e == nil:
	case s.isFull():
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
