package nftlist

import (
	"encoding/json"
	"slices"
)

// parseElements returns the elements between braces: keys of a set, or keys and values of a map. It
// returns an unsupported expression for an element that it cannot parse.
func parseElements(tokens []token) []json.RawMessage {
	elements := []json.RawMessage{}
	first, depth := 1, 1
	for i := 1; i < len(tokens); i++ {
		switch {
		case tokens[i].isPunctuation("{"):
			depth++
		case tokens[i].isPunctuation("}"):
			depth--
		}
		if depth > 0 && (depth > 1 || !tokens[i].isPunctuation(",")) {
			continue
		}
		if i > first {
			elements = append(elements, parsePair(tokens[first:i]))
		}
		if first = i + 1; depth == 0 {
			break
		}
	}
	return elements
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
	case len(data) == 2 && (data[0].is("jump") || data[0].is("goto")) && data[1].kind == word:
		return encode([]any{key, map[string]any{
			data[0].text: map[string]string{"target": data[1].text},
		}})
	case len(data) == 1 && isVerdict(data[0]):
		return encode([]any{key, map[string]any{data[0].text: nil}})
	}
	return encode([]any{key, parseConcat(data)})
}

// isVerdict reports whether a token is a verdict without an argument.
func isVerdict(t token) bool {
	return t.is("accept") || t.is("drop") || t.is("return") || t.is("continue")
}

// parseKey returns a key with the attributes of the element that follow it: a comment, a counter,
// and the time of its expiration.
func parseKey(tokens []token) json.RawMessage {
	end := slices.IndexFunc(tokens, func(t token) bool {
		return t.is("comment") || t.is("timeout") || t.is("expires") || t.is("counter")
	})
	if end <= 0 {
		return parseConcat(tokens)
	}
	fields := map[string]any{"val": parseConcat(tokens[:end])}
	for rest := tokens[end:]; len(rest) > 0; {
		size := 2
		switch name := rest[0].text; {
		case rest[0].kind != word:
			return unsupportedExpression(tokens)
		case name == "counter":
			size, _ = parseCounter(rest)
			fields[name] = nil
		case name == "comment" || name == "timeout" || name == "expires":
			fields[name] = ""
		default:
			return unsupportedExpression(tokens)
		}
		rest = rest[min(size, len(rest)):]
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
