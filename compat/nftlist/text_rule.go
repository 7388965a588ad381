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
		size, parsed := parseStatement(rest)
		if size == 0 || isEnded {
			if isEnded || !isStart(rest[0]) && len(r.Statements) > 0 {
				rest, r.Statements = previous, r.Statements[:len(r.Statements)-1]
			}
			r.Statements = append(r.Statements, statement{text: t.textOf(rest)})
			t.in.recordNames(rest)
			break
		}
		parsed.text = t.textOf(rest[:size])
		r.Statements = append(r.Statements, parsed)
		previous, rest = rest, rest[size:]
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
	if t.kind != word {
		return false
	}
	switch t.text {
	case "limit", "quota", "dnat", "snat", "masquerade", "reject", "queue", "dup", "fwd", "add",
		"update", "delete", "synproxy", "flow", "xt", "jump", "goto", "log", "redirect", "tproxy",
		"meta", "ct", "fib", "numgen", "jhash", "symhash", "socket", "osf", "rt", "ipsec", "exthdr":
		return true
	}
	return isProtocol(t.text)
}

// parseStatement reads the first statement and returns the number of its tokens, or 0 if it cannot
// parse the statement. The functions that it calls do the same.
func parseStatement(tokens []token) (int, statement) {
	first := tokens[0]
	if first.kind != word {
		return 0, statement{}
	}
	switch first.text {
	case "accept", "drop", "return", "continue", "notrack":
		return 1, statement{kind: first.text}
	case "jump", "goto":
		if len(tokens) > 1 && tokens[1].kind == word {
			return 2, statement{kind: first.text, body: encode(map[string]string{
				"target": tokens[1].text,
			})}
		}
		return 0, statement{}
	case "counter":
		return parseCounter(tokens)
	case "log":
		return parseLog(tokens)
	case "limit":
		return parseLimit(tokens)
	case "quota":
		return parseQuota(tokens)
	case "add", "update", "delete":
		return parseSetChange(tokens)
	case "dnat", "snat", "masquerade", "redirect", "tproxy":
		return parseTranslation(tokens)
	case "reject":
		return parseReject(tokens)
	}
	if first.is("ct") && len(tokens) > 1 && tokens[1].is("count") {
		return parseConnectionLimit(tokens)
	}
	if size, s := parseConnectionObject(tokens); size > 0 {
		return size, s
	}
	size, left := parseOperand(tokens)
	switch {
	case size == 0 || size == len(tokens):
		return 0, statement{}
	case tokens[size].is("set"):
		return parseMangle(tokens, size, left)
	case tokens[size].is("vmap"):
		return parseVerdictMap(tokens, size, left)
	}
	return parseMatch(tokens, size, left)
}

// parseVerdictMap reads KEY vmap MAP. The first size tokens are the key, which is already parsed.
func parseVerdictMap(tokens []token, size int, key json.RawMessage) (int, statement) {
	count, data := parseRight(tokens[size+1:])
	if count == 0 {
		return 0, statement{}
	}
	return size + 1 + count, statement{kind: "vmap", body: encode(map[string]json.RawMessage{
		"key": key, "data": data,
	})}
}

// parseMangle reads KEY set VALUE. The first size tokens are the key, which is already parsed.
func parseMangle(tokens []token, size int, key json.RawMessage) (int, statement) {
	rest := tokens[size+1:]
	if len(rest) == 0 {
		return 0, statement{}
	}
	count, value := parseMapped(rest)
	if count == 0 {
		count, value = parseRight(rest)
		if count == 0 || count > 1 && !isEventKey(key) || !isEventKey(key) && !isConstant(rest[0].text) {
			return 0, statement{}
		}
	}
	return size + 1 + count, statement{kind: "mangle", body: encode(map[string]json.RawMessage{
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
