package nftlist

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// translationOf reads dnat, snat, masquerade, redirect or tproxy: KIND [FAMILY] [FORM] [to
// [ADDRESS][:PORT]] [FLAGS].
func translationOf(tokens []token) (int, statement) {
	s := statement{kind: tokens[0].text}
	of := map[string]any{}
	size := 1
	if size < len(tokens) && (tokens[size].is("ip") || tokens[size].is("ip6")) {
		of["family"] = tokens[size].text
		size++
	}
	count, form := formOf(tokens[size:])
	if form != "" {
		of["type_flags"] = form
		size += count
	}
	if size+1 < len(tokens) && tokens[size].is("to") {
		count := targetOf(tokens[size+1:], of)
		if count == 0 {
			return 0, statement{}
		}
		size += 1 + count
	} else if len(of) > 0 {
		return 0, statement{}
	}
	count, flags := natFlagsOf(tokens[size:])
	if count > 0 {
		of["flags"] = flags
		size += count
	}
	if form == "prefix" {
		of["flags"] = append(flags, "netmap")
	}
	if len(of) > 0 {
		s.body = encode(of)
	}
	return size, s
}

// formOf reads the form of the values of a map: addr . port, prefix or interval.
func formOf(tokens []token) (int, string) {
	switch {
	case len(tokens) > 2 && tokens[0].is("addr") && tokens[1].is(".") && tokens[2].is("port"):
		return 3, "concat"
	case len(tokens) > 0 && (tokens[0].is("prefix") || tokens[0].is("interval")):
		return 1, tokens[0].text
	}
	return 0, ""
}

// natFlagsOf reads a list of flags of a translation.
func natFlagsOf(tokens []token) (int, []string) {
	var flags []string
	size := 0
	for size < len(tokens) {
		switch t := tokens[size]; {
		case t.is("random") || t.is("fully-random") || t.is("persistent"):
			flags = append(flags, t.text)
			size++
		default:
			return size, flags
		}
		if size+1 >= len(tokens) || !tokens[size].isMark(",") {
			return size, flags
		}
		size++
	}
	return size, flags
}

// targetOf reads [ADDRESS][:PORT], of which each may be a value of a map, and returns the number of
// its tokens.
func targetOf(tokens []token, of map[string]any) int {
	size := 0
	if count, addr := mappedOf(tokens); count > 0 {
		of["addr"] = addr
		if size = count; size >= len(tokens) || !strings.HasPrefix(tokens[size].text, ":") {
			return size
		}
	}
	if tokens[size].kind != word {
		return 0
	}
	addr, port, hasPort := splitTarget(tokens[size].text)
	if addr != "" {
		value, ok := addressOf(addr)
		if !ok || size > 0 {
			return 0
		}
		of["addr"] = value
	}
	if !hasPort {
		return 1
	}
	first := tokens[size]
	first.text = port
	if _, isNumber := numberOf(port[:min(1, len(port))]); isNumber {
		of["port"] = valueOf(first)
		return size + 1
	}
	count, value := mappedOf(append([]token{first}, tokens[size+1:]...))
	if count == 0 {
		return 0
	}
	of["port"] = value
	return size + count
}

// splitTarget splits an address and a port after a colon. IPv6 addresses before a port are in
// brackets.
func splitTarget(text string) (addr, port string, hasPort bool) {
	colon := strings.LastIndexByte(text, ':')
	isBare := strings.Count(text, ":") > 1 && !strings.Contains(text, "]:")
	if colon < 0 || isBare {
		return text, "", false
	}
	return text[:colon], text[colon+1:], true
}

// addressOf returns an address, a prefix or a range.
func addressOf(text string) (json.RawMessage, bool) {
	text = strings.NewReplacer("[", "", "]", "").Replace(text)
	value := valueOf(token{kind: word, text: text})
	first, _, _ := strings.Cut(text, "-")
	first, _, _ = strings.Cut(first, "/")
	_, err := netip.ParseAddr(first)
	return value, err == nil
}
