package nftlist

import (
	"slices"
	"strings"
)

// A token is a lexical element of a listing.
type token struct {
	kind tokenKind
	text string // of a string without the quotes; of a comment with #
	// offset and end are the positions of the token's beginning and end in the listing, in bytes.
	offset, end int
	line        int // from 1
}

type tokenKind uint8

const (
	endOfText tokenKind = iota
	newline
	word
	quoted      // a string in quotes; nft does not escape characters
	comment     // from # to the end of the line
	punctuation // one of { } , ;
)

// is reports whether the token is a word or punctuation with one of the texts.
func (t token) is(texts ...string) bool {
	return (t.kind == word || t.kind == punctuation) && slices.Contains(texts, t.text)
}

// opensParenthesis reports whether the token is a word that begins with a parenthesis.
func (t token) opensParenthesis() bool { return t.kind == word && strings.HasPrefix(t.text, "(") }

// isEnd reports whether the token ends a statement.
func (t token) isEnd() bool {
	return t.kind == newline || t.kind == endOfText || t.is(";")
}

// A scanner splits a text into tokens.
type scanner struct {
	text   string
	offset int
	line   int
}

// next returns the next token.
func (s *scanner) next() token {
	for s.offset < len(s.text) && strings.IndexByte(" \t\r", s.text[s.offset]) >= 0 {
		s.offset++
	}
	t := token{offset: s.offset, line: s.line}
	if s.offset == len(s.text) {
		t.end = s.offset
		return t
	}
	rest := s.text[s.offset:]
	size := 1
	switch rest[0] {
	case '\n':
		t.kind = newline
		s.line++
	case '{', '}', ',', ';':
		t.kind, t.text = punctuation, rest[:1]
	case '#':
		t.kind = comment
		if size = strings.IndexByte(rest, '\n'); size < 0 {
			size = len(rest)
		}
		t.text = strings.TrimRight(rest[:size], " \t\r")
	case '"':
		if end := strings.IndexAny(rest[1:], "\"\n"); end >= 0 && rest[1+end] == '"' {
			t.kind, t.text, size = quoted, rest[1:1+end], end+2
			break
		}
		fallthrough // an unclosed quote begins a word, which no statement accepts
	default:
		t.kind = word
		if size = strings.IndexAny(rest[1:], " \t\r\n{},;\"") + 1; size == 0 {
			size = len(rest)
		}
		t.text = rest[:size]
	}
	s.offset += size
	t.end = s.offset
	return t
}
