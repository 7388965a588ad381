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

// formatLike formats an element like its neighbor: on one or several lines, with the neighbor's
// indentation and line ends. space is the white space before the neighbor.
func formatLike(element, neighbor json.RawMessage, space []byte) []byte {
	var out bytes.Buffer
	unit, multiline := indentation(neighbor, space)
	if !multiline {
		if json.Compact(&out, element) != nil {
			return element
		}
		return out.Bytes()
	}
	if json.Indent(&out, bytes.TrimSpace(element), string(lastLine(space)), string(unit)) != nil {
		return element
	}
	if bytes.Contains(neighbor, []byte("\r\n")) {
		return bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n"))
	}
	return out.Bytes()
}

// indentation returns the indentation of the members of an element relative to the element.
// multiline reports whether both the element and its first member begin on a new line. space is the
// white space before the element.
func indentation(element json.RawMessage, space []byte) (unit []byte, multiline bool) {
	if bytes.IndexByte(space, '\n') < 0 {
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
	unit, ok := bytes.CutPrefix(lastLine(inner[:end]), lastLine(space))
	if !ok {
		return nil, true
	}
	return unit, true
}

// lastLine returns the white space after the last line end.
func lastLine(space []byte) []byte { return space[bytes.LastIndexByte(space, '\n')+1:] }

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }
