package nftlist

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// readChain reads a chain.
func (t *textReader) readChain(id objectID) error {
	object := chainObject{Family: id.family, Table: id.table, Name: id.name}
	for {
		s, err := t.readInBlock(false)
		if err != nil {
			return err
		}
		switch {
		case len(s.tokens) == 0:
		case len(s.tokens) > 3 && s.key() == "type" && s.tokens[2].is("hook"):
			err = t.readBase(&object, s.tokens)
		case len(s.tokens) == 2 && s.key() == "policy":
			object.Policy = s.tokens[1].text
		case len(s.tokens) == 2 && (s.key() == "comment" || s.key() == "flags"):
		default:
			t.in.addRule(t.readRule(id, s))
		}
		if err != nil {
			return err
		}
		if s.end.is("}") {
			t.in.chains = append(t.in.chains, object)
			return nil
		}
	}
}

// readBase reads the position of a base chain: type T hook H [device D | devices = { D, ... }]
// priority P.
func (t *textReader) readBase(c *chainObject, tokens []token) error {
	c.Type, c.Hook = &tokens[1].text, &tokens[3].text
	rest := tokens[4:]
	for len(rest) > 0 && !rest[0].is("priority") {
		rest = rest[1:]
	}
	if len(rest) < 2 {
		return t.syntaxError(tokens[0], "type TYPE hook HOOK priority PRIORITY")
	}
	var sum strings.Builder
	for _, token := range rest[1:] {
		sum.WriteString(token.text)
	}
	priority, ok := parsePriority(c.Family, sum.String())
	if !ok {
		return t.syntaxError(rest[1], "a priority, such as -100, mangle or dstnat - 10")
	}
	c.Priority = &priority
	return nil
}

// parsePriority parses a number, or a name with an optional offset.
func parsePriority(family, text string) (int, bool) {
	name, offset := text, ""
	if i := strings.IndexAny(text, "+-"); i >= 0 {
		name, offset = text[:i], text[i:]
	}
	priority := 0
	if name != "" {
		n, err := strconv.Atoi(name)
		known := priorities(family)
		if named, ok := known[name]; ok {
			n, err = named, nil
		}
		if err != nil {
			return 0, false
		}
		priority = n
	}
	if offset == "" {
		return priority, name != ""
	}
	n, err := strconv.ParseInt(offset, 10, 32)
	return priority + int(n), err == nil
}

// priorities returns the named priorities of a family by name (nft(8)).
func priorities(family string) map[string]int {
	if family == "bridge" {
		return map[string]int{"dstnat": -300, "filter": -200, "out": 100, "srcnat": 300}
	}
	return map[string]int{
		"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100,
	}
}

// readSet reads a set or a map. It does not store a set with an unknown statement. Rules that use
// such a set are undecided.
func (t *textReader) readSet(id objectID, isMap bool) error {
	object := setObject{Family: id.family, Table: id.table, Name: id.name}
	if isMap {
		object.Map = encode("map") // only its presence matters
	}
	isKnown := true
	for {
		s, err := t.readInBlock(false)
		if err != nil {
			return err
		}
		// Newer versions of nft write the number of elements as a comment.
		s.tokens = slices.DeleteFunc(s.tokens, func(t token) bool { return t.kind == comment })
		switch s.key() {
		case "type", "typeof", "gc-interval", "policy", "auto-merge", "comment":
		case "flags":
			object.Flags = flagList(s.tokens[1:])
		case "timeout":
			object.Timeout = encode(secondsOf(s.tokens[1:]))
		case "size":
			n, err := strconv.ParseUint(s.tokens[len(s.tokens)-1].text, 10, 32)
			object.Size = uint32(n)
			isKnown = isKnown && err == nil && len(s.tokens) == 2
		case "counter":
			object.Statements = []json.RawMessage{encode(map[string]any{"counter": nil})}
		case "elements":
			c := cursor{tokens: s.tokens[1:]}
			c.expect("=")
			if object.Elements = parseElements(&c); c.failed {
				return t.syntaxError(s.tokens[0], "elements = { ELEMENT, ... }")
			}
		default:
			isKnown = isKnown && len(s.tokens) == 0
		}
		if s.end.is("}") {
			if isKnown {
				t.in.sets[id] = object
			}
			return nil
		}
	}
}

// secondsOf returns the time in a statement, in seconds, or an empty text if it cannot parse the
// time.
func secondsOf(tokens []token) any {
	if len(tokens) == 1 {
		if n, ok := parseSeconds(tokens[0].text); ok {
			return n
		}
	}
	return ""
}

// flagList returns the words of a list as JSON.
func flagList(tokens []token) json.RawMessage {
	flags := []string{}
	for _, token := range tokens {
		if token.kind == word {
			flags = append(flags, token.text)
		}
	}
	return encode(flags)
}
