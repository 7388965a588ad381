package nftlist

import (
	"encoding/json"
	"slices"
)

// parseElements reads { ELEMENT, ... }. An element is a key of a set, or a key and a value of a
// map. For an element that it cannot parse, it returns an unsupported expression.
func parseElements(c *cursor) []json.RawMessage {
	c.expect("{")
	elements := []json.RawMessage{}
	first, depth := 0, 1
	for i, t := range c.tokens {
		switch {
		case t.is("{"):
			depth++
		case t.is("}"):
			depth--
		}
		if depth > 0 && (depth > 1 || !t.is(",")) {
			continue
		}
		if i > first {
			elements = append(elements, parsePair(c.tokens[first:i]))
		}
		if first = i + 1; depth == 0 {
			c.skip(first)
			return elements
		}
	}
	c.fail()
	return nil
}

// parsePair returns an element: a key, or a key and a value of a map.
func parsePair(tokens []token) json.RawMessage {
	colon := slices.IndexFunc(tokens, func(t token) bool { return t.is(":") })
	if colon < 0 {
		return parseKey(tokens)
	}
	if colon == 0 || colon+1 == len(tokens) {
		return unsupportedExpression(tokens)
	}
	key, data := parseKey(tokens[:colon]), tokens[colon+1:]
	switch {
	case len(data) == 2 && data[0].is("jump", "goto") && data[1].kind == word:
		return encode([]any{key, map[string]any{
			data[0].text: map[string]string{"target": data[1].text},
		}})
	case len(data) == 1 && data[0].is("accept", "drop", "return", "continue"):
		return encode([]any{key, map[string]any{data[0].text: nil}})
	}
	return encode([]any{key, parseConcat(data)})
}

// parseKey returns a key with the attributes of the element that follow it: a comment, a counter,
// and the time of its expiration.
func parseKey(tokens []token) json.RawMessage {
	end := slices.IndexFunc(tokens, func(t token) bool {
		return t.is("comment", "timeout", "expires", "counter")
	})
	if end <= 0 {
		return parseConcat(tokens)
	}
	fields := map[string]any{"val": parseConcat(tokens[:end])}
	for c := (cursor{tokens: tokens[end:]}); len(c.tokens) > 0; {
		switch name := c.next(); {
		case name.is("counter"):
			parseCounter(&c)
			fields[name.text] = nil
		case name.is("comment", "timeout", "expires"):
			c.skip(1)
			fields[name.text] = ""
		default:
			return unsupportedExpression(tokens)
		}
	}
	return encode(map[string]any{"elem": fields})
}

// parseConcat returns a value, or values with dots between them.
func parseConcat(tokens []token) json.RawMessage {
	if len(tokens) == 1 {
		return parseValue(tokens[0])
	}
	var parts []json.RawMessage
	for i := 0; i < len(tokens); i += 2 {
		if i+1 < len(tokens) && !tokens[i+1].is(".") || tokens[i].is(".") {
			return unsupportedExpression(tokens)
		}
		parts = append(parts, parseValue(tokens[i]))
	}
	if len(tokens)%2 == 0 {
		return unsupportedExpression(tokens)
	}
	return encode(map[string]any{"concat": parts})
}
