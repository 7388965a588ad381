package nftlist

import (
	"encoding/json"
	"slices"
	"strings"
)

// parseOperand reads the left side of a statement: an expression or a concatenation. Like the other
// parse functions of this file, it returns the number of the tokens that it has read, or 0 if it
// cannot parse them.
func parseOperand(tokens []token) (int, json.RawMessage) {
	size, first := parsePart(tokens)
	if size == 0 || size+1 >= len(tokens) || !tokens[size].is(".") {
		return size, first
	}
	parts := []json.RawMessage{first}
	for size+1 < len(tokens) && tokens[size].is(".") {
		count, part := parsePart(tokens[size+1:])
		if count == 0 {
			return 0, nil
		}
		parts = append(parts, part)
		size += 1 + count
	}
	return size, encode(map[string]any{"concat": parts})
}

// parsePart reads a property of packets or a computation, and bitwise operations on it. It does not
// parse an operation whose operator binds tighter than the operator before it, such as a | b & c,
// which nft lists in parentheses or without the constant operation.
func parsePart(tokens []token) (int, json.RawMessage) {
	size, value := parseExpression(tokens)
	if size == 0 {
		size, value = parseGroup(tokens)
	}
	if size == 0 {
		return 0, nil
	}
	previous := tightest
	for operations := 0; size+1 < len(tokens) && tokens[size].kind == word; operations++ {
		operator := tokens[size].text
		precedence := precedenceOf(operator)
		if precedence == 0 {
			return size, value
		}
		count, constant := parseMask(tokens[size+1:])
		if count == 0 || operations == maxNesting || precedence > previous {
			return 0, nil
		}
		previous = precedence
		value = encode(map[string]any{operator: []json.RawMessage{value, constant}})
		size += 1 + count
	}
	return size, value
}

// tightest is the precedence of the operators that bind their operands tightest.
const tightest = 4

// precedenceOf returns the precedence of a bitwise operator in nft, or 0 if there is no such
// operator.
func precedenceOf(operator string) int {
	switch operator {
	case "|":
		return 1
	case "^":
		return 2
	case "&":
		return 3
	case "<<", ">>":
		return tightest
	}
	return 0
}

// parseGroup reads an operation in parentheses. Groups are not nested, because nft evaluates
// operations from the left.
func parseGroup(tokens []token) (int, json.RawMessage) {
	if len(tokens) == 0 || tokens[0].kind != word || !strings.HasPrefix(tokens[0].text, "(") {
		return 0, nil
	}
	end := slices.IndexFunc(tokens, func(t token) bool {
		return t.kind == word && strings.HasSuffix(t.text, ")")
	}) + 1
	if end == 0 {
		return 0, nil
	}
	group := slices.Clone(tokens[:end])
	group[0].text = group[0].text[1:]
	group[end-1].text = strings.TrimSuffix(group[end-1].text, ")")
	if strings.HasPrefix(group[0].text, "(") {
		return 0, nil
	}
	size, value := parsePart(group)
	if size != end {
		return 0, nil
	}
	return size, value
}

// parseMapped reads an operand and, if one follows, the map in which it is looked up.
func parseMapped(tokens []token) (int, json.RawMessage) {
	size, key := parseOperand(tokens)
	if size == 0 || size+1 >= len(tokens) || !tokens[size].is("map") {
		return size, key
	}
	count, data := parseRight(tokens[size+1:])
	if count == 0 {
		return 0, nil
	}
	return size + 1 + count, encode(map[string]any{
		"map": map[string]json.RawMessage{"key": key, "data": data},
	})
}

// parseExpression reads a property of packets or a computation.
func parseExpression(tokens []token) (int, json.RawMessage) {
	if len(tokens) > 0 && tokens[0].kind == word {
		if omitsMeta(tokens[0].text) {
			return 1, keyExpression("meta", tokens[0].text)
		}
		if strings.HasPrefix(tokens[0].text, "@") {
			return parseRawPayload(tokens)
		}
	}
	if len(tokens) < 2 || tokens[0].kind != word || tokens[1].kind != word {
		return 0, nil
	}
	first, second := tokens[0].text, tokens[1].text
	switch {
	case first == "ct" && (second == "original" || second == "reply"):
		return parseDirected(tokens)
	case first == "meta" || first == "ct":
		return 2, keyExpression(first, second)
	case first == "socket" && second != "cgroupv2":
		return 2, keyExpression(first, second)
	case first == "fib":
		return parseFib(tokens)
	case isComputation(tokens[0]):
		return parseComputation(tokens)
	case first == "rt":
		return parseRoute(tokens)
	case (first == "tcp" || first == "ip") && second == "option" || first == "exthdr":
		return parseOption(tokens)
	case isProtocol(first):
		return 2, encode(map[string]any{
			"payload": map[string]string{"protocol": first, "field": second},
		})
	}
	return 0, nil
}

// keyExpression returns an expression with a key, such as {"meta": {"key": "mark"}}.
func keyExpression(kind, key string) json.RawMessage {
	return encode(map[string]any{kind: map[string]string{"key": key}})
}

// omitsMeta reports whether nft writes the key of meta without the word meta.
func omitsMeta(key string) bool {
	switch key {
	case "iif", "oif", "iifname", "oifname", "iiftype", "oiftype", "iifgroup", "oifgroup",
		"pkttype", "cpu", "rtclassid", "nftrace", "cgroup":
		return true
	}
	return false
}

// isProtocol reports whether the name begins an expression for a field of a header.
func isProtocol(name string) bool {
	switch name {
	case "ether", "vlan", "arp", "ip", "ip6", "icmp", "icmpv6", "igmp", "ah", "esp", "comp", "udp",
		"udplite", "tcp", "dccp", "sctp", "th":
		return true
	}
	return false
}

// parseDirected reads ct DIRECTION [ip|ip6] KEY.
func parseDirected(tokens []token) (int, json.RawMessage) {
	size, family := 3, ""
	if len(tokens) > 2 && (tokens[2].is("ip") || tokens[2].is("ip6")) {
		size, family = 4, tokens[2].text+" "
	}
	if len(tokens) < size || tokens[size-1].kind != word {
		return 0, nil
	}
	return size, encode(map[string]any{"ct": map[string]string{
		"dir": tokens[1].text, "key": family + tokens[size-1].text,
	}})
}

// parseFib reads fib KEY [. KEY]... RESULT.
func parseFib(tokens []token) (int, json.RawMessage) {
	flags := []string{tokens[1].text}
	size := 2
	for size+1 < len(tokens) && tokens[size].is(".") {
		flags = append(flags, tokens[size+1].text)
		size += 2
	}
	if size >= len(tokens) {
		return 0, nil
	}
	switch result := tokens[size].text; result {
	case "type", "oif", "oifname":
		return size + 1, encode(map[string]any{
			"fib": map[string]any{"result": result, "flags": flags},
		})
	}
	return 0, nil
}

// parseRawPayload reads @BASE,OFFSET,LENGTH.
func parseRawPayload(tokens []token) (int, json.RawMessage) {
	if len(tokens) < 5 || !tokens[1].isPunctuation(",") || !tokens[3].isPunctuation(",") {
		return 0, nil
	}
	offset, hasOffset := parseNumber(tokens[2].text)
	length, hasLength := parseNumber(tokens[4].text)
	if !hasOffset || !hasLength {
		return 0, nil
	}
	return 5, encode(map[string]any{"payload": map[string]any{
		"base": tokens[0].text[1:], "offset": offset, "len": length,
	}})
}

// parseRoute reads rt [ip|ip6] KEY.
func parseRoute(tokens []token) (int, json.RawMessage) {
	fields := map[string]string{}
	size := 2
	if tokens[1].is("ip") || tokens[1].is("ip6") {
		fields["family"] = tokens[1].text
		size++
	}
	if len(tokens) < size || tokens[size-1].kind != word {
		return 0, nil
	}
	switch key := tokens[size-1].text; key {
	case "classid", "nexthop", "mtu", "ipsec":
		fields["key"] = key
		return size, encode(map[string]any{"rt": fields})
	}
	return 0, nil // rt is also an extension header
}

// parseOption reads tcp option NAME [FIELD], ip option NAME or exthdr NAME.
func parseOption(tokens []token) (int, json.RawMessage) {
	kind, size := tokens[0].text, 2
	if kind != "exthdr" {
		kind, size = kind+" option", 3
	}
	if len(tokens) < size+1 || tokens[size-1].kind != word {
		return 0, nil
	}
	fields := map[string]string{"name": tokens[size-1].text}
	switch next := tokens[size].text; next {
	case "exists", "missing", "0", "1", "==", "!=":
		if tokens[size].is(next) {
			return size, encode(map[string]any{kind: fields})
		}
	}
	if tokens[size].kind != word {
		return 0, nil
	}
	fields["field"] = tokens[size].text
	return size + 1, encode(map[string]any{kind: fields})
}

// isComputation reports whether a token begins a computation.
func isComputation(t token) bool { return t.is("numgen") || t.is("jhash") || t.is("symhash") }

// parseComputation reads numgen MODE mod N [offset N], jhash EXPRESSION mod N [seed N] [offset N],
// or symhash mod N [offset N].
func parseComputation(tokens []token) (int, json.RawMessage) {
	kind := tokens[0].text
	fields := map[string]any{}
	size := 1
	switch kind {
	case "numgen":
		fields["mode"] = tokens[1].text
		size++
	case "jhash":
		end := slices.IndexFunc(tokens, func(t token) bool { return t.is("mod") })
		if end < 0 || slices.ContainsFunc(tokens[1:end], isComputation) {
			return 0, nil
		}
		count, expression := parseOperand(tokens[1:end])
		if count == 0 {
			return 0, nil
		}
		fields["expr"] = expression
		size += count
	}
	if size+1 >= len(tokens) || !tokens[size].is("mod") {
		return 0, nil
	}
	for size+1 < len(tokens) {
		name := tokens[size].text
		if name != "mod" && name != "seed" && name != "offset" || tokens[size].kind != word {
			break
		}
		number, ok := parseNumber(tokens[size+1].text)
		if !ok || tokens[size+1].kind != word {
			return 0, nil
		}
		fields[name] = number
		size += 2
	}
	return size, encode(map[string]any{kind: fields})
}
