package nftlist

import (
	"encoding/json"
	"strings"
)

// rule reads a rule. From the first statement that is not understood, and the one before it, to
// which its text may belong, the rest of the rule is one unknown statement.
func (t *textReader) rule(at place, s textStatement) ruleObject {
	r := ruleObject{
		Family: at.family, Table: at.table, Chain: at.name, Handle: s.handle, line: s.line(),
	}
	rest := s.tokens
	if n := len(rest); n > 2 && rest[n-2].is("comment") && rest[n-1].kind == quoted {
		r.Comment, rest = rest[n-1].text, rest[:n-2]
	}
	previous := rest
	for len(rest) > 0 {
		size, one := statementOf(rest)
		if size == 0 {
			if !isStart(rest[0]) && len(r.Statements) > 0 {
				rest, r.Statements = previous, r.Statements[:len(r.Statements)-1]
			}
			r.Statements = append(r.Statements, statement{text: t.textOf(rest)})
			t.noteSets(rest)
			break
		}
		one.text = t.textOf(rest[:size])
		r.Statements = append(r.Statements, one)
		previous, rest = rest, rest[size:]
	}
	return r
}

// textOf returns the text of tokens, in one line.
func (t *textReader) textOf(tokens []token) string {
	text := t.scan.text[tokens[0].offset:tokens[len(tokens)-1].end]
	return strings.Join(strings.Fields(text), " ")
}

// noteSets records the sets that unknown statements name: they may change them.
func (t *textReader) noteSets(tokens []token) {
	for _, of := range tokens {
		if name, ok := strings.CutPrefix(of.text, "@"); ok {
			t.in.changed[name] = true
		}
	}
}

// isStart reports whether a token begins a statement and cannot belong to one of those that
// statementOf understands.
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

// statementOf reads the first statement and returns the number of its tokens, 0 if it is not
// understood.
func statementOf(tokens []token) (int, statement) {
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
		return counterOf(tokens)
	case "log":
		return logOf(tokens)
	case "redirect", "tproxy":
		return toPort(tokens)
	}
	size, left := expressionOf(tokens)
	if size == 0 || size == len(tokens) {
		return 0, statement{}
	}
	if tokens[size].is("set") {
		return mangleOf(tokens, size, left)
	}
	return matchOf(tokens, size, left)
}

// counterOf reads counter [packets N bytes N | name "NAME"].
func counterOf(tokens []token) (int, statement) {
	counter := statement{kind: "counter"}
	switch {
	case len(tokens) > 4 && tokens[1].is("packets") && tokens[3].is("bytes"):
		return 5, counter
	case len(tokens) > 2 && tokens[1].is("name"):
		return 3, counter
	}
	return 1, counter
}

// logOf reads log and its options. One that queues packets to a program is no mere log.
func logOf(tokens []token) (int, statement) {
	size := 1
	options := map[string]string{}
	for size+1 < len(tokens) && tokens[size].kind != quoted {
		switch option := tokens[size].text; option {
		case "prefix", "level", "group", "snaplen", "flags", "queue-threshold":
			options[option] = tokens[size+1].text
			size += 2
		case ",": // between flags
			size += 2
		case "sequence", "options", "ip": // flags tcp sequence, flags ip options
			size++
		default:
			return size, statement{kind: "log", body: encode(options)}
		}
	}
	return size, statement{kind: "log", body: encode(options)}
}

// toPort reads redirect, redirect to :PORT and tproxy [FAMILY] to :PORT.
func toPort(tokens []token) (int, statement) {
	kind := tokens[0].text
	to := map[string]any{}
	size := 1
	if kind == "tproxy" && len(tokens) > 1 && (tokens[1].is("ip") || tokens[1].is("ip6")) {
		to["family"] = tokens[1].text
		size++
	}
	if size+1 >= len(tokens) || !tokens[size].is("to") {
		if kind == "tproxy" {
			return 0, statement{}
		}
		return 1, statement{kind: kind}
	}
	text, ok := strings.CutPrefix(tokens[size+1].text, ":")
	port, isNumber := numberOf(text)
	if !ok || !isNumber || tokens[size+1].kind != word {
		return 0, statement{}
	}
	to["port"] = port
	return size + 2, statement{kind: kind, body: encode(to)}
}

// mangleOf reads KEY set VALUE, of which the first tokens are the key.
func mangleOf(tokens []token, size int, key json.RawMessage) (int, statement) {
	rest := tokens[size+1:]
	if len(rest) == 0 {
		return 0, statement{}
	}
	count, value := expressionOf(rest)
	if count == 0 {
		if _, ok := numberOf(rest[0].text); !ok || rest[0].kind != word {
			return 0, statement{}
		}
		count, value = 1, valueOf(rest[0])
	}
	for count+1 < len(rest) && (rest[count].is("&") || rest[count].is("|") || rest[count].is("^")) {
		if _, ok := numberOf(rest[count+1].text); !ok || rest[count+1].kind != word {
			return 0, statement{}
		}
		value = encode(map[string]any{rest[count].text: []any{value, valueOf(rest[count+1])}})
		count += 2
	}
	return size + 1 + count, statement{kind: "mangle", body: encode(map[string]json.RawMessage{
		"key": key, "value": value,
	})}
}
