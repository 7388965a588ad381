package chain

import (
	"bytes"
	"encoding/json"
)

// spaceBefore returns the white space between element i and the preceding bracket or comma.
func (l *List) spaceBefore(i int) []byte {
	start := l.Plugins[i].start
	from := start
	for from > 0 && isSpace(l.data[from-1]) {
		from--
	}
	return l.data[from:start]
}

// formatLike formats an element like its neighbor: on one or several lines, with its indentation
// and line ends.
func formatLike(element, neighbour json.RawMessage, before []byte) []byte {
	var out bytes.Buffer
	unit, multiline := indentation(neighbour, before)
	if !multiline {
		if json.Compact(&out, element) != nil {
			return element
		}
		return out.Bytes()
	}
	if json.Indent(&out, bytes.TrimSpace(element), string(lastLine(before)), string(unit)) != nil {
		return element
	}
	if bytes.Contains(neighbour, []byte("\r\n")) {
		return bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n"))
	}
	return out.Bytes()
}

// indentation returns the indentation of the members relative to their element, and whether they
// are on separate lines.
func indentation(element json.RawMessage, before []byte) (unit []byte, multiline bool) {
	if bytes.IndexByte(before, '\n') < 0 {
		return nil, false
	}
	inner := element[1:] // after the brace
	end := 0
	for end < len(inner) && isSpace(inner[end]) {
		end++
	}
	if bytes.IndexByte(inner[:end], '\n') < 0 {
		return nil, false
	}
	members, own := lastLine(inner[:end]), lastLine(before)
	if unit, ok := bytes.CutPrefix(members, own); ok {
		return unit, true
	}
	return nil, true
}

// lastLine returns the text after the last line end.
func lastLine(space []byte) []byte { return space[bytes.LastIndexByte(space, '\n')+1:] }

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }
