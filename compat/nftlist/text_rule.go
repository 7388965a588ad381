package nftlist

import (
	"encoding/json"
	"strings"
)

// readRule reads a rule. If it cannot parse a statement, the rest of the rule becomes a single
// unknown statement. If the rest may belong to the statement before, the unknown statement contains
// that statement too. This is also the case if a statement follows a verdict that ends the rule:
// nft accepts no such rule, so that the verdict may be part of a name.
func (t *textReader) readRule(id objectID, s textStatement) ruleObject {
	r := ruleObject{
		Family: id.family, Table: id.table, Chain: id.name, Handle: s.handle, line: s.line(),
	}
	rest := s.tokens
	if n := len(rest); n > 2 && rest[n-2].is("comment") && rest[n-1].kind == quoted {
		r.Comment, rest = rest[n-1].text, rest[:n-2]
	}
	previous, isEnded := rest, false
	for len(rest) > 0 {
		c := cursor{tokens: rest}
		parsed := parseStatement(&c)
		if c.failed || isEnded {
			if isEnded || !isStart(rest[0]) && len(r.Statements) > 0 {
				rest, r.Statements = previous, r.Statements[:len(r.Statements)-1]
			}
			r.Statements = append(r.Statements, statement{text: t.textOf(rest)})
			t.in.recordNames(rest)
			break
		}
		parsed.text = t.textOf(rest[:len(rest)-len(c.tokens)])
		r.Statements = append(r.Statements, parsed)
		previous, rest = rest, c.tokens
		switch parsed.kind {
		case "accept", "drop", "return", "jump", "goto":
			isEnded = true
		}
	}
	return r
}

// textOf returns the text of tokens, in one line.
func (t *textReader) textOf(tokens []token) string {
	text := t.scan.text[tokens[0].offset:tokens[len(tokens)-1].end]
	return strings.Join(strings.Fields(text), " ")
}

// isStart reports whether a token always begins a statement. Such a token never belongs to the
// preceding statement, if parseStatement supports that statement.
func isStart(t token) bool {
	return isProtocol(t) || t.is("limit", "quota", "dnat", "snat", "masquerade", "reject", "queue",
		"dup", "fwd", "add", "update", "delete", "synproxy", "flow", "xt", "jump", "goto", "log",
		"redirect", "tproxy", "meta", "ct", "fib", "numgen", "jhash", "symhash", "socket", "osf",
		"rt", "ipsec", "exthdr")
}

// parseStatement reads a statement.
func parseStatement(c *cursor) statement {
	start := *c
	switch kind := c.word().text; kind {
	case "accept", "drop", "return", "continue", "notrack":
		return statement{kind: kind}
	case "jump", "goto":
		return statement{kind: kind, body: encode(map[string]string{"target": c.word().text})}
	case "counter":
		return parseCounter(c)
	case "log":
		return parseLog(c)
	case "limit":
		return parseLimit(c)
	case "quota":
		return parseQuota(c)
	case "add", "update", "delete":
		return parseSetChange(c, kind)
	case "dnat", "snat", "masquerade", "redirect", "tproxy":
		return parseTranslation(c, kind)
	case "reject":
		return parseReject(c)
	case "ct":
		if c.accept("count") {
			return parseConnectionLimit(c)
		}
		object := c.peek(0).text
		isObject := object == "helper" || object == "timeout" || object == "expectation"
		if isObject && c.peek(1).is("set") && c.peek(2).kind == quoted {
			c.skip(2)
			return statement{kind: "ct " + object, body: encode(c.next().text)}
		}
	}
	*c = start // the statement begins with an operand
	left := parseOperand(c)
	switch {
	case c.accept("set"):
		return parseMangle(c, left)
	case c.accept("vmap"):
		return statement{kind: "vmap", body: encode(map[string]json.RawMessage{
			"key": left, "data": parseRight(c),
		})}
	}
	return parseMatch(c, left)
}

// parseMangle reads VALUE, which follows KEY set.
func parseMangle(c *cursor, key json.RawMessage) statement {
	mapped := *c
	value := parseMapped(&mapped)
	if !mapped.failed {
		*c = mapped
	} else {
		// Any other value is a constant. Only the value of ct event can be a list.
		first, size := c.peek(0), len(c.tokens)
		value = parseRight(c)
		isSingle := size-len(c.tokens) == 1
		c.require(isEventKey(key) || isSingle && isConstant(first.text))
	}
	return statement{kind: "mangle", body: encode(map[string]json.RawMessage{
		"key": key, "value": value,
	})}
}

// isEventKey reports whether an expression is "ct event", whose value is a list of names.
func isEventKey(e json.RawMessage) bool { return string(e) == string(keyExpression("ct", "event")) }

// isConstant reports whether a word is a number, a handle of traffic control such as 1:10 or none,
// or a name of a value of dscp or ecn.
func isConstant(text string) bool {
	_, isNumber := parseNumber(text)
	_, isDSCP := parseDSCP(text)
	_, isECN := parseECN(text)
	_, isHandle := parseTC(text)
	return isNumber || isDSCP || isECN || isHandle
}
