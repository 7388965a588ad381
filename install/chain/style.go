package chain

import (
	"bytes"
	"encoding/json"
)

// spaceBefore returns what stands between element i and the bracket or comma before it.
func (l *List) spaceBefore(i int) []byte {
	start := l.Plugins[i].start
	from := start
	for from > 0 && isSpace(l.data[from-1]) {
		from--
	}
	return l.data[from:start]
}

// like formats an element as its neighbour is: over several lines or on one, with its indentation
// and its line ends.
func like(element, neighbour json.RawMessage, before []byte) []byte {
	var out bytes.Buffer
	unit, multiline := indentation(neighbour, before)
	if !multiline {
		if json.Compact(&out, element) != nil {
			return element
		}
		return out.Bytes()
	}
	if json.Indent(&out, bytes.TrimSpace(element), string(margin(before)), string(unit)) != nil {
		return element
	}
	if bytes.Contains(neighbour, []byte("\r\n")) {
		return bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n"))
	}
	return out.Bytes()
}

// indentation returns by what the members of an element are indented from the element, and whether
// they stand on lines of their own.
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
	members, own := margin(inner[:end]), margin(before)
	if unit, ok := bytes.CutPrefix(members, own); ok {
		return unit, true
	}
	return nil, true
}

// margin is what stands between the last line end and the text after it.
func margin(space []byte) []byte { return space[bytes.LastIndexByte(space, '\n')+1:] }

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }
