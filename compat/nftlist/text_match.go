package nftlist

import (
	"encoding/json"
	"strings"
)

// expressionOf reads a property of packets at the beginning of a statement, such as meta mark or
// tcp dport, and returns the number of its tokens, 0 if it is not understood.
func expressionOf(tokens []token) (int, json.RawMessage) {
	if tokens[0].kind == word && isShort(tokens[0].text) {
		return 1, keyed("meta", tokens[0].text)
	}
	if len(tokens) < 2 || tokens[0].kind != word || tokens[1].kind != word {
		return 0, nil
	}
	first, second := tokens[0].text, tokens[1].text
	switch {
	case first == "meta":
		return 2, keyed("meta", second)
	case first == "ct" && (second == "original" || second == "reply"):
		return directedOf(tokens)
	case first == "ct":
		return 2, keyed("ct", second)
	case first == "fib":
		return fibOf(tokens)
	case isProtocol(first) && second != "option":
		return 2, encode(map[string]any{
			"payload": map[string]string{"protocol": first, "field": second},
		})
	}
	return 0, nil
}

func keyed(kind, key string) json.RawMessage {
	return encode(map[string]any{kind: map[string]string{"key": key}})
}

// isShort reports whether nft writes the key of meta without the word meta.
func isShort(key string) bool {
	switch key {
	case "iif", "oif", "iifname", "oifname", "iiftype", "oiftype", "iifgroup", "oifgroup",
		"pkttype", "cpu", "rtclassid", "nftrace", "cgroup":
		return true
	}
	return false
}

func isProtocol(name string) bool {
	switch name {
	case "ether", "vlan", "arp", "ip", "ip6", "icmp", "icmpv6", "igmp", "ah", "esp", "comp", "udp",
		"udplite", "tcp", "dccp", "sctp", "th":
		return true
	}
	return false
}

// directedOf reads ct DIRECTION [ip|ip6] KEY.
func directedOf(tokens []token) (int, json.RawMessage) {
	size := 3
	if len(tokens) > 2 && (tokens[2].is("ip") || tokens[2].is("ip6")) {
		size = 4
	}
	if len(tokens) < size || tokens[size-1].kind != word {
		return 0, nil
	}
	return size, encode(map[string]any{"ct": map[string]string{
		"dir": tokens[1].text, "key": tokens[size-1].text,
	}})
}

// fibOf reads fib KEY [. KEY]... RESULT.
func fibOf(tokens []token) (int, json.RawMessage) {
	size := 2
	for size+1 < len(tokens) && tokens[size].is(".") {
		size += 2
	}
	if size >= len(tokens) {
		return 0, nil
	}
	switch result := tokens[size].text; result {
	case "type", "oif", "oifname":
		return size + 1, encode(map[string]any{"fib": map[string]string{"result": result}})
	}
	return 0, nil
}

// matchOf reads LEFT [& MASK] [OPERATOR] VALUE or LEFT [OPERATOR] VALUE / MASK, of which the first
// tokens are the left side.
func matchOf(tokens []token, size int, left json.RawMessage) (int, statement) {
	if tokens[size].is("&") {
		count, mask := maskOf(tokens[size+1:])
		if count == 0 || size+1+count == len(tokens) {
			return 0, statement{}
		}
		left = encode(map[string]any{"&": []any{left, mask}})
		size += 1 + count
	}
	op, isGiven := "==", true
	switch tokens[size].text {
	case "==", "!=", "<", ">", "<=", ">=":
		op = tokens[size].text
		size++
	default:
		isGiven = false
	}
	count, right := rightOf(tokens[size:])
	if count == 0 {
		return 0, statement{}
	}
	first := tokens[size]
	size += count
	if size+1 < len(tokens) && tokens[size].is("/") {
		count, mask := rightOf(tokens[size+1:])
		if count == 0 {
			return 0, statement{}
		}
		left = encode(map[string]any{"&": []any{left, mask}})
		size += 1 + count
	} else if !isGiven && count > 1 && !first.isMark("{") {
		// Without an operator a list of flags, such as the states of ct state, matches any of them.
		op = "in"
	}
	return size, statement{kind: "match", body: encode(map[string]any{
		"op": op, "left": left, "right": right,
	})}
}

// maskOf reads a value, or in newer versions names of flags such as (syn | ack).
func maskOf(tokens []token) (int, json.RawMessage) {
	if len(tokens) == 0 || tokens[0].kind != word {
		return 0, nil
	}
	name, isList := strings.CutPrefix(tokens[0].text, "(")
	if !isList {
		return 1, valueOf(tokens[0])
	}
	names := []string{name}
	for size := 1; size+1 < len(tokens) && tokens[size].is("|"); size += 2 {
		name, isLast := strings.CutSuffix(tokens[size+1].text, ")")
		names = append(names, name)
		if isLast {
			return size + 2, encode(names)
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
	if tokens[0].kind != word && tokens[0].kind != quoted || isOperator(tokens[0]) {
		return 0, nil
	}
	list := []json.RawMessage{valueOf(tokens[0])}
	size := 1
	for size+1 < len(tokens) && tokens[size].isMark(",") && tokens[size+1].kind == word {
		list = append(list, valueOf(tokens[size+1]))
		size += 2
	}
	if len(list) == 1 {
		return 1, list[0]
	}
	return size, encode(list)
}

// setOf reads an anonymous set. A map has values after a colon, and is none.
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
