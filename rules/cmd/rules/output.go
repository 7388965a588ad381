package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// print writes a result to stdout, as text or as JSON.
func (s *system) print(text string, object any) error {
	if !s.json {
		_, err := io.WriteString(s.stdout, text)
		return refused(err)
	}
	encoder := newEncoder(s.stdout)
	encoder.SetIndent("", "  ")
	return refused(encoder.Encode(object))
}

// newEncoder writes JSON in which the & and > of rules are legible.
func newEncoder(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder
}

// count writes a number of things.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
