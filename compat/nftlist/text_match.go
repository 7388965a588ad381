package nftlist

import (
	"encoding/json"
	"strings"
)

// parseMatch reads [OPERATOR] VALUE or [OPERATOR] VALUE / MASK, which follows the left side of a
// comparison.
func parseMatch(c *cursor, left json.RawMessage) statement {
	// Without an operator a comparison of flags, such as ct state, matches any of them.
	op := "in"
	if t := c.peek(0); c.accept("==", "!=", "<", ">", "<=", ">=", "!") {
		op = t.text
	}
	right := parseRight(c)
	// Without an operator, a set means ==. So does a | b, because nft writes flags of which any may
	// match with commas.
	kind, _ := onlyMember(right)
	isEqual := kind == "set" || kind == "|"
	if c.acceptBefore(1, "/") {
		left = encode(map[string]any{"&": []any{left, parseRight(c)}})
		isEqual = true // a mask means == too
	}
	if op == "in" && isEqual {
		op = "=="
	}
	return statement{kind: "match", body: encode(map[string]any{
		"op": op, "left": left, "right": right,
	})}
}

// parseMask reads a value or, as newer versions of nft write it, names of flags such as (syn |
// ack).
func parseMask(c *cursor) json.RawMessage {
	first := c.word()
	c.require(!isOperator(first))
	if !first.opensParenthesis() {
		return parseValue(first)
	}
	flags := []json.RawMessage{parseValue(token{kind: word, text: first.text[1:]})}
	for c.acceptBefore(1, "|") {
		name, isLast := strings.CutSuffix(c.next().text, ")")
		flags = append(flags, parseValue(token{kind: word, text: name}))
		if isLast {
			return encode(map[string]any{"|": flags})
		}
	}
	c.fail()
	return nil
}

// parseRight reads the right side of a comparison: a value, a list of flags, a set, or the name of
// a set.
func parseRight(c *cursor) json.RawMessage {
	first := c.peek(0)
	switch {
	case first.is("{"):
		return encode(map[string]any{"set": parseElements(c)})
	case first.opensParenthesis():
		return parseMask(c)
	case first.kind != word && first.kind != quoted || isOperator(first):
		c.fail()
		return nil
	}
	values := []json.RawMessage{parseValue(c.next())}
	separator := c.peek(0)
	for separator.is(",", "|") && c.peek(0).is(separator.text) && c.peek(1).kind == word {
		c.skip(1)
		values = append(values, parseValue(c.next()))
	}
	switch {
	case len(values) == 1:
		return values[0]
	case separator.is("|"):
		return encode(map[string]any{"|": values})
	}
	return encode(values)
}

// isOperator reports whether a token connects expressions.
func isOperator(t token) bool {
	return t.is(".", "/", "|", "&", "^", "<<", ">>", "vmap", "map", "set", "and", "or", "xor")
}
