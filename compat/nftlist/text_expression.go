package nftlist

import (
	"encoding/json"
	"slices"
	"strings"
)

// parseOperand reads the left side of a statement: an expression or a concatenation.
func parseOperand(c *cursor) json.RawMessage {
	parts := []json.RawMessage{parsePart(c)}
	for c.acceptBefore(1, ".") {
		parts = append(parts, parsePart(c))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return encode(map[string]any{"concat": parts})
}

// parsePart reads a property of packets or a computation, and bitwise operations on it. It rejects
// an operator that binds more tightly than the operator before it, as in a | b & c. nft never lists
// such an expression: it adds parentheses, or evaluates an operation on constants.
func parsePart(c *cursor) json.RawMessage {
	var value json.RawMessage
	if c.peek(0).opensParenthesis() {
		value = parseGroup(c)
	} else {
		value = parseExpression(c)
	}
	previous := tightest
	for operations := 0; len(c.tokens) > 1 && precedenceOf(c.peek(0)) > 0; operations++ {
		operator := c.next()
		precedence := precedenceOf(operator)
		constant := parseMask(c)
		c.require(operations < maxNesting && precedence <= previous)
		previous = precedence
		value = encode(map[string]any{operator.text: []json.RawMessage{value, constant}})
	}
	return value
}

// tightest is the highest precedence: the precedence of the shifts.
const tightest = 4

// precedenceOf returns the precedence of a bitwise operator in nft, or 0 for any other token.
func precedenceOf(t token) int {
	switch {
	case t.is("|"):
		return 1
	case t.is("^"):
		return 2
	case t.is("&"):
		return 3
	case t.is("<<", ">>"):
		return tightest
	}
	return 0
}

// parseGroup reads an operation in parentheses. Groups are not nested, because nft evaluates
// operations from the left.
func parseGroup(c *cursor) json.RawMessage {
	end := slices.IndexFunc(c.tokens, func(t token) bool {
		return t.kind == word && strings.HasSuffix(t.text, ")")
	}) + 1
	if end == 0 || strings.HasPrefix(c.peek(0).text, "((") {
		c.fail()
		return nil
	}
	group := cursor{tokens: slices.Clone(c.tokens[:end])}
	first, last := &group.tokens[0], &group.tokens[end-1]
	first.text = first.text[1:]
	last.text = strings.TrimSuffix(last.text, ")")
	value := parsePart(&group)
	c.skip(end)
	c.require(!group.failed && len(group.tokens) == 0)
	return value
}

// parseMapped reads an operand and, if one follows, the map in which it is looked up.
func parseMapped(c *cursor) json.RawMessage {
	key := parseOperand(c)
	if !c.acceptBefore(1, "map") {
		return key
	}
	return encode(map[string]any{
		"map": map[string]json.RawMessage{"key": key, "data": parseRight(c)},
	})
}

// parseExpression reads a property of packets or a computation.
func parseExpression(c *cursor) json.RawMessage {
	first, second := c.word(), c.peek(0)
	switch {
	case omitsMeta(first):
		return keyExpression("meta", first.text)
	case strings.HasPrefix(first.text, "@"):
		return parseRawPayload(c, first.text[1:])
	case second.kind != word: // the expressions below have at least two words
	case first.is("ct") && second.is("original", "reply"):
		return parseDirected(c)
	case first.is("meta", "ct"), first.is("socket") && !second.is("cgroupv2"):
		return keyExpression(first.text, c.next().text)
	case first.is("fib"):
		return parseFib(c)
	case isComputation(first):
		return parseComputation(c, first.text)
	case first.is("rt"):
		return parseRoute(c)
	case first.is("tcp", "ip") && second.is("option"), first.is("exthdr"):
		return parseOption(c, first.text)
	case isProtocol(first):
		return encode(map[string]any{
			"payload": map[string]string{"protocol": first.text, "field": c.next().text},
		})
	}
	c.fail()
	return nil
}

// keyExpression returns an expression with a key, such as {"meta": {"key": "mark"}}.
func keyExpression(kind, key string) json.RawMessage {
	return encode(map[string]any{kind: map[string]string{"key": key}})
}

// omitsMeta reports whether a token is a key of meta that nft writes without the word meta.
func omitsMeta(t token) bool {
	return t.is("iif", "oif", "iifname", "oifname", "iiftype", "oiftype", "iifgroup", "oifgroup",
		"pkttype", "cpu", "rtclassid", "nftrace", "cgroup")
}

// isProtocol reports whether a token begins an expression for a field of a header.
func isProtocol(t token) bool {
	return t.is("ether", "vlan", "arp", "ip", "ip6", "icmp", "icmpv6", "igmp", "ah", "esp", "comp",
		"udp", "udplite", "tcp", "dccp", "sctp", "th")
}

// parseDirected reads DIRECTION [ip|ip6] KEY, which follows ct.
func parseDirected(c *cursor) json.RawMessage {
	direction, family := c.next().text, ""
	if t := c.peek(0); c.accept("ip", "ip6") {
		family = t.text + " "
	}
	return encode(map[string]any{"ct": map[string]string{
		"dir": direction, "key": family + c.word().text,
	}})
}

// parseFib reads KEY [. KEY]... RESULT, which follows fib.
func parseFib(c *cursor) json.RawMessage {
	flags := []string{c.next().text}
	for c.acceptBefore(1, ".") {
		flags = append(flags, c.next().text)
	}
	result := c.next().text
	c.require(result == "type" || result == "oif" || result == "oifname")
	return encode(map[string]any{"fib": map[string]any{"result": result, "flags": flags}})
}

// parseRawPayload reads ,OFFSET,LENGTH, which follows @BASE.
func parseRawPayload(c *cursor, base string) json.RawMessage {
	c.expect(",")
	offset := c.number()
	c.expect(",")
	return encode(map[string]any{"payload": map[string]any{
		"base": base, "offset": offset, "len": c.number(),
	}})
}

// parseRoute reads [ip|ip6] KEY, which follows rt.
func parseRoute(c *cursor) json.RawMessage {
	fields := map[string]string{}
	if t := c.peek(0); c.accept("ip", "ip6") {
		fields["family"] = t.text
	}
	key := c.word()
	c.require(key.is("classid", "nexthop", "mtu", "ipsec")) // rt is also an extension header
	fields["key"] = key.text
	return encode(map[string]any{"rt": fields})
}

// parseOption reads option NAME [FIELD], which follows tcp, option NAME, which follows ip, or NAME,
// which follows exthdr.
func parseOption(c *cursor, kind string) json.RawMessage {
	if kind != "exthdr" {
		kind += " " + c.next().text
	}
	fields := map[string]string{"name": c.word().text}
	if !c.peek(0).is("exists", "missing", "0", "1", "==", "!=") {
		fields["field"] = c.word().text
	}
	return encode(map[string]any{kind: fields})
}

// isComputation reports whether a token begins a computation.
func isComputation(t token) bool { return t.is("numgen", "jhash", "symhash") }

// parseComputation reads MODE mod N [offset N], which follows numgen, EXPRESSION mod N [seed N]
// [offset N], which follows jhash, or mod N [offset N], which follows symhash.
func parseComputation(c *cursor, kind string) json.RawMessage {
	fields := map[string]any{}
	switch kind {
	case "numgen":
		fields["mode"] = c.next().text
	case "jhash":
		end := slices.IndexFunc(c.tokens, func(t token) bool { return t.is("mod") })
		if end < 0 || slices.ContainsFunc(c.tokens[:end], isComputation) {
			c.fail()
			return nil
		}
		source := cursor{tokens: c.tokens[:end]}
		fields["expr"] = parseOperand(&source)
		c.skip(end)
		c.require(!source.failed && len(source.tokens) == 0)
	}
	c.require(c.peek(0).is("mod") && len(c.tokens) > 1)
	for name := c.peek(0); c.acceptBefore(1, "mod", "seed", "offset"); name = c.peek(0) {
		c.require(c.peek(0).kind == word)
		fields[name.text] = c.number()
	}
	return encode(map[string]any{kind: fields})
}
