package nftlist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// readText reads the output of nft list ruleset.
func (in *reader) readText(file, text string) error {
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("%s: the text is empty: nft list ruleset prints nothing only if there "+
			"are no tables", file)
	}
	in.isText = true
	t := textReader{in: in, file: file, scan: scanner{text: text, line: 1}}
	for {
		head, err := t.readStatement(true)
		switch {
		case err != nil:
			return err
		case head.end.kind == endOfText && len(head.tokens) == 0:
			return nil
		case len(head.tokens) == 0 && head.end.isEnd():
			continue
		}
		if err := t.readTable(head); err != nil {
			return err
		}
	}
}

// A textReader translates text to the objects that nft lists in JSON.
type textReader struct {
	in   *reader
	file string
	scan scanner
}

// A textStatement is a line, or the part of a line before a semicolon or a block.
type textStatement struct {
	tokens []token
	handle uint64
	// end is the token after the statement: a separator, { before a block, or } after the last
	// statement of a block.
	end token
}

// isHeader reports whether the statement begins a block, and consists of the words and a name. An
// empty word stands for any word.
func (s textStatement) isHeader(words ...string) bool {
	if !s.end.is("{") || len(s.tokens) != len(words)+1 {
		return false
	}
	for i, w := range words {
		if w != "" && !s.tokens[i].is(w) {
			return false
		}
	}
	return true
}

// key returns the first word, or an empty text if the statement does not begin with a word.
func (s textStatement) key() string {
	if len(s.tokens) > 0 && s.tokens[0].kind == word {
		return s.tokens[0].text
	}
	return ""
}

// readStatement reads the next statement. If blocks is set, the statement ends before a block.
// Otherwise braces belong to the statement, which may have several lines.
func (t *textReader) readStatement(blocks bool) (textStatement, error) {
	var s textStatement
	depth := 0
	for {
		next := t.scan.next()
		switch {
		case next.kind == endOfText && depth > 0:
			return s, t.syntaxError(next, "} before the end of the text")
		case next.kind == comment && depth == 0:
			if handle, ok := parseHandle(next); ok {
				s.handle = handle
				continue
			}
			if len(s.tokens) == 0 {
				continue
			}
			// Older versions of nft write a comment in place of a match or target that they cannot
			// translate.
		case depth == 0 && (next.isEnd() || next.is("}") || blocks && next.is("{")):
			s.end = next
			return s, nil
		case next.kind == newline:
			continue
		case next.is("{"):
			depth++
		case next.is("}"):
			depth--
		}
		s.tokens = append(s.tokens, next)
	}
}

// readInBlock is like readStatement, but returns an error at the end of the text.
func (t *textReader) readInBlock(blocks bool) (textStatement, error) {
	s, err := t.readStatement(blocks)
	if err == nil && s.end.kind == endOfText {
		err = t.syntaxError(s.end, "} before the end of the text")
	}
	return s, err
}

// parseHandle returns the handle in a comment of nft -a.
func parseHandle(t token) (uint64, bool) {
	number, ok := strings.CutPrefix(t.text, "# handle ")
	if !ok {
		return 0, false
	}
	handle, err := strconv.ParseUint(number, 10, 64)
	return handle, err == nil
}

// skip reads the rest of a block.
func (t *textReader) skip() error {
	for depth := 1; depth > 0; {
		switch next := t.scan.next(); {
		case next.kind == endOfText:
			return t.syntaxError(next, "} before the end of the text")
		case next.is("{"):
			depth++
		case next.is("}"):
			depth--
		}
	}
	return nil
}

// readTable reads a table.
func (t *textReader) readTable(head textStatement) error {
	if !head.isHeader("table", "") || !isFamily(head.tokens[1].text) {
		return t.notTableError(head)
	}
	id := objectID{family: head.tokens[1].text, table: head.tokens[2].text}
	object := tableObject{Family: id.family, Name: id.table}
	for {
		s, err := t.readInBlock(true)
		if err != nil {
			return err
		}
		switch {
		case s.end.is("{"):
			err = t.readBlock(id, s)
		case s.key() == "flags":
			object.Flags = flagList(s.tokens[1:])
		case len(s.tokens) > 0 && s.key() != "comment":
			err = t.syntaxError(s.tokens[0], "a chain, a set or another object of a table")
		}
		if err != nil {
			return err
		}
		if s.end.is("}") {
			t.in.tables = append(t.in.tables, object)
			return nil
		}
	}
}

func isFamily(text string) bool {
	switch text {
	case "ip", "ip6", "inet", "arp", "bridge", "netdev":
		return true
	}
	return false
}

// readBlock reads an object of a table. It skips objects other than chains, sets and maps, because
// the effect of the statements that use them does not depend on their values.
func (t *textReader) readBlock(id objectID, head textStatement) error {
	switch {
	case head.isHeader("chain"):
		id.name = head.tokens[1].text
		return t.readChain(id)
	case head.isHeader("set"), head.isHeader("map"):
		id.name = head.tokens[1].text
		return t.readSet(id, head.key() == "map")
	case len(head.tokens) == 0:
		return t.syntaxError(head.end, "a chain, a set or another object of a table")
	}
	return t.skip()
}

// syntaxError returns a syntax error at a token. want describes the expected text.
func (t *textReader) syntaxError(at token, want string) error {
	column := at.offset - strings.LastIndexByte(t.scan.text[:at.offset], '\n')
	e := &save.SyntaxError{File: t.file, Line: at.line, Column: column, Want: want}
	if at.kind != newline {
		e.Token = t.scan.text[at.offset:at.end]
	}
	return e
}

// notTableError returns the error for a statement that does not begin a table.
func (t *textReader) notTableError(s textStatement) error {
	token := s.end
	if len(s.tokens) > 0 {
		token = s.tokens[0]
	}
	want := "a table, such as table inet nat {, in text that nft list ruleset prints"
	if len(t.in.tables) == 0 {
		want += save.LooksLike(t.scan.text)
	}
	return t.syntaxError(token, want)
}

// line returns the line of a statement.
func (s textStatement) line() rules.Line { return rules.Line(s.tokens[0].line) }
