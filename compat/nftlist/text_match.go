package nftlist

import (
	"encoding/json"
	"strings"
)

// matchOf reads LEFT [OPERATOR] VALUE or LEFT [OPERATOR] VALUE / MASK, of which the first tokens
// are the left side.
func matchOf(tokens []token, size int, left json.RawMessage) (int, statement) {
	// Without an operator a comparison of flags, such as ct state, matches any of them.
	op := "in"
	switch tokens[size].text {
	case "==", "!=", "<", ">", "<=", ">=", "!":
		op = tokens[size].text
		size++
	}
	count, right := rightOf(tokens[size:])
	if count == 0 {
		return 0, statement{}
	}
	isSet := tokens[size].isMark("{")
	size += count
	if size+1 < len(tokens) && tokens[size].is("/") {
		count, mask := rightOf(tokens[size+1:])
		if count == 0 {
			return 0, statement{}
		}
		left = encode(map[string]any{"&": []any{left, mask}})
		size += 1 + count
		isSet = true // a comparison of the masked flags
	}
	if op == "in" && isSet {
		op = "=="
	}
	return size, statement{kind: "match", body: encode(map[string]any{
		"op": op, "left": left, "right": right,
	})}
}

// maskOf reads a value, or in newer versions names of flags such as (syn | ack).
func maskOf(tokens []token) (int, json.RawMessage) {
	if len(tokens) == 0 || tokens[0].kind != word || isOperator(tokens[0]) {
		return 0, nil
	}
	name, isList := strings.CutPrefix(tokens[0].text, "(")
	if !isList {
		return 1, valueOf(tokens[0])
	}
	flags := []json.RawMessage{valueOf(token{kind: word, text: name})}
	for size := 1; size+1 < len(tokens) && tokens[size].is("|"); size += 2 {
		name, isLast := strings.CutSuffix(tokens[size+1].text, ")")
		flags = append(flags, valueOf(token{kind: word, text: name}))
		if isLast {
			return size + 2, encode(map[string]any{"|": flags})
		}
	}
	return 0, nil
}

// rightOf reads a value, a list of flags, a set or the name of one.
func rightOf(tokens []token) (int, json.RawMessage) {
	if len(tokens) == 0 {
		return 0, nil
	}
	if tokens[0].isMark("{") {
		return setOf(tokens)
	}
	if tokens[0].kind == word && strings.HasPrefix(tokens[0].text, "(") {
		return maskOf(tokens)
	}
	if tokens[0].kind != word && tokens[0].kind != quoted || isOperator(tokens[0]) {
		return 0, nil
	}
	isComma := func(t token) bool { return t.isMark(",") }
	if size, list := listOf(tokens, isComma); size > 1 {
		return size, encode(list)
	}
	isOr := func(t token) bool { return t.is("|") }
	if size, list := listOf(tokens, isOr); size > 1 {
		return size, encode(map[string]any{"|": list})
	}
	return 1, valueOf(tokens[0])
}

// listOf reads values with separators.
func listOf(tokens []token, separates func(token) bool) (int, []json.RawMessage) {
	list := []json.RawMessage{valueOf(tokens[0])}
	size := 1
	for size+1 < len(tokens) && separates(tokens[size]) && tokens[size+1].kind == word {
		list = append(list, valueOf(tokens[size+1]))
		size += 2
	}
	return size, list
}

// setOf reads an anonymous set or map.
func setOf(tokens []token) (int, json.RawMessage) {
	depth := 0
	for i, t := range tokens {
		switch {
		case t.isMark("{"):
			depth++
		case t.isMark("}"):
			if depth--; depth == 0 {
				return i + 1, encode(map[string]any{"set": elementsOf(tokens[:i+1])})
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
