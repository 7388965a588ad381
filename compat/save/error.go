package save

import (
	"errors"
	"fmt"
)

// A SyntaxError is a place of a text at which something else was expected. Parse and ParseIstioLog
// report several at once, joined by [errors.Join].
type SyntaxError struct {
	File string
	Line int // from 1
	// Column is the byte of the line at which the token begins, from 1; 0 where the line is JSON,
	// in which a byte of the text has no place of its own.
	Column int
	// Token is what is there; empty where the line ends.
	Token string
	// Want says what was expected instead.
	Want string
}

// Error says where, what was found and what was expected, in one line.
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

// maxToken bounds how much of a token an error shows, in bytes.
const maxToken = 200

// maxErrors bounds how many errors of a text are reported: enough to see what is wrong with it.
const maxErrors = 20

// syntaxErrors are those of a text, in the order of its lines: the first of them, and how many
// there are more.
type syntaxErrors struct {
	list []*SyntaxError
	more int
}

// err joins the errors, nil if there are none.
func (s *syntaxErrors) err() error {
	var list []error
	for _, e := range s.list {
		list = append(list, e)
	}
	if s.more > 0 {
		list = append(list, fmt.Errorf("%s: %d more errors", s.list[0].File, s.more))
	}
	return errors.Join(list...)
}

// areMany reports whether no further error is kept.
func (s *syntaxErrors) areMany() bool { return len(s.list) == maxErrors }

// add records an error unless it is nil.
func (s *syntaxErrors) add(e *SyntaxError) {
	switch {
	case e == nil:
	case s.areMany():
		s.more++
	default:
		s.list = append(s.list, e)
	}
}

// addAll records the errors of another part of the text.
func (s *syntaxErrors) addAll(other *syntaxErrors) {
	for _, e := range other.list {
		s.add(e)
	}
	s.more += other.more
}
