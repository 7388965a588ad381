package nftlist

import (
	"encoding/json"
	"strings"
)

// parseMatch reads LEFT [OPERATOR] VALUE or LEFT [OPERATOR] VALUE / MASK. The first size tokens are
// the left side, which is already parsed.
func parseMatch(tokens []token, size int, left json.RawMessage) (int, statement) {
	// Without an operator a comparison of flags, such as ct state, matches any of them.
	op := "in"
	if tokens[size].kind == word {
		switch tokens[size].text {
		case "==", "!=", "<", ">", "<=", ">=", "!":
			op = tokens[size].text
			size++
		}
	}
	count, right := parseRight(tokens[size:])
	if count == 0 {
		return 0, statement{}
	}
	// Without an operator, a set means ==, and so does a | b: nft separates the flags of which any
	// matches by commas.
	kind, _ := onlyMember(right)
	isEqual := kind == "set" || kind == "|"
	size += count
	if size+1 < len(tokens) && tokens[size].is("/") {
		count, mask := parseRight(tokens[size+1:])
		if count == 0 {
			return 0, statement{}
		}
		left = encode(map[string]any{"&": []any{left, mask}})
		size += 1 + count
		isEqual = true // a mask means == too
	}
	if op == "in" && isEqual {
		op = "=="
	}
	return size, statement{kind: "match", body: encode(map[string]any{
		"op": op, "left": left, "right": right,
	})}
}

// parseMask reads a value or, as newer versions of nft write it, names of flags such as (syn |
// ack).
func parseMask(tokens []token) (int, json.RawMessage) {
	if len(tokens) == 0 || tokens[0].kind != word || isOperator(tokens[0]) {
		return 0, nil
	}
	name, isList := strings.CutPrefix(tokens[0].text, "(")
	if !isList {
		return 1, parseValue(tokens[0])
	}
	flags := []json.RawMessage{parseValue(token{kind: word, text: name})}
	for size := 1; size+1 < len(tokens) && tokens[size].is("|"); size += 2 {
		name, isLast := strings.CutSuffix(tokens[size+1].text, ")")
		flags = append(flags, parseValue(token{kind: word, text: name}))
		if isLast {
			return size + 2, encode(map[string]any{"|": flags})
		}
	}
	return 0, nil
}

// parseRight reads the right side of a comparison: a value, a list of flags, a set, or the name of
// a set.
func parseRight(tokens []token) (int, json.RawMessage) {
	if len(tokens) == 0 {
		return 0, nil
	}
	if tokens[0].isPunctuation("{") {
		return parseSet(tokens)
	}
	if tokens[0].kind == word && strings.HasPrefix(tokens[0].text, "(") {
		return parseMask(tokens)
	}
	if tokens[0].kind != word && tokens[0].kind != quoted || isOperator(tokens[0]) {
		return 0, nil
	}
	isComma := func(t token) bool { return t.isPunctuation(",") }
	if size, list := parseList(tokens, isComma); size > 1 {
		return size, encode(list)
	}
	isOr := func(t token) bool { return t.is("|") }
	if size, list := parseList(tokens, isOr); size > 1 {
		return size, encode(map[string]any{"|": list})
	}
	return 1, parseValue(tokens[0])
}

// parseList reads values between separators.
func parseList(tokens []token, isSeparator func(token) bool) (int, []json.RawMessage) {
	values := []json.RawMessage{parseValue(tokens[0])}
	size := 1
	for size+1 < len(tokens) && isSeparator(tokens[size]) && tokens[size+1].kind == word {
		values = append(values, parseValue(tokens[size+1]))
		size += 2
	}
	return size, values
}

// parseSet reads an anonymous set or map.
func parseSet(tokens []token) (int, json.RawMessage) {
	depth := 0
	for i, t := range tokens {
		switch {
		case t.isPunctuation("{"):
			depth++
		case t.isPunctuation("}"):
			if depth--; depth == 0 {
				return i + 1, encode(map[string]any{"set": parseElements(tokens[:i+1])})
			}
		}
	}
	return 0, nil
}

// isOperator reports whether a token connects expressions.
func isOperator(t token) bool {
	switch t.text {
	case ".", "/", "|", "&", "^", "<<", ">>", "vmap", "map", "set", "and", "or", "xor":
		return t.kind == word
	}
	return false
}
