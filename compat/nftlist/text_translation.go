package nftlist

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// parseTranslation reads dnat, snat, masquerade, redirect or tproxy: KIND [FAMILY] [FORM] [to
// [ADDRESS][:PORT]] [FLAGS].
func parseTranslation(tokens []token) (int, statement) {
	s := statement{kind: tokens[0].text}
	fields := map[string]any{}
	size := 1
	if size < len(tokens) && (tokens[size].is("ip") || tokens[size].is("ip6")) {
		fields["family"] = tokens[size].text
		size++
	}
	count, form := parseForm(tokens[size:])
	if form != "" {
		fields["type_flags"] = form
		size += count
	}
	if size+1 < len(tokens) && tokens[size].is("to") {
		count := parseTarget(tokens[size+1:], fields)
		if count == 0 {
			return 0, statement{}
		}
		size += 1 + count
	} else if len(fields) > 0 {
		return 0, statement{}
	}
	if _, hasPort := fields["port"]; s.kind == "tproxy" && !hasPort {
		// nft does not list the port if it is a value of a map.
		return 0, statement{}
	}
	count, flags := parseNATFlags(tokens[size:])
	if count > 0 {
		fields["flags"] = flags
		size += count
	}
	if form == "prefix" {
		fields["flags"] = append(flags, "netmap")
	}
	if len(fields) > 0 {
		s.body = encode(fields)
	}
	return size, s
}

// parseForm reads the form of the values of a map: addr . port, prefix or interval.
func parseForm(tokens []token) (int, string) {
	switch {
	case len(tokens) > 2 && tokens[0].is("addr") && tokens[1].is(".") && tokens[2].is("port"):
		return 3, "concat"
	case len(tokens) > 0 && (tokens[0].is("prefix") || tokens[0].is("interval")):
		return 1, tokens[0].text
	}
	return 0, ""
}

// parseNATFlags reads a list of flags of a translation.
func parseNATFlags(tokens []token) (int, []string) {
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
		if size+1 >= len(tokens) || !tokens[size].isPunctuation(",") {
			return size, flags
		}
		size++
	}
	return size, flags
}

// parseTarget reads [ADDRESS][:PORT] and sets the fields addr and port. Each may be a value of a
// map. It returns the number of the tokens, or 0 if it cannot parse them.
func parseTarget(tokens []token, fields map[string]any) int {
	size := 0
	if count, addr := parseMapped(tokens); count > 0 {
		fields["addr"] = addr
		if size = count; size >= len(tokens) || !strings.HasPrefix(tokens[size].text, ":") {
			return size
		}
	}
	if tokens[size].kind != word {
		return 0
	}
	addr, port, hasPort := splitTarget(tokens[size].text)
	if addr != "" {
		value, ok := parseAddress(addr)
		if !ok || size > 0 {
			return 0
		}
		fields["addr"] = value
	}
	if !hasPort {
		return 1
	}
	first := tokens[size]
	first.text = port
	if _, isNumber := parseNumber(port[:min(1, len(port))]); isNumber {
		fields["port"] = parseValue(first)
		return size + 1
	}
	count, value := parseMapped(append([]token{first}, tokens[size+1:]...))
	if count == 0 {
		return 0
	}
	fields["port"] = value
	return size + count
}

// splitTarget splits an address and a port after a colon. IPv6 addresses before a port are in
// brackets.
func splitTarget(text string) (addr, port string, hasPort bool) {
	colon := strings.LastIndexByte(text, ':')
	isIPv6Only := strings.Count(text, ":") > 1 && !strings.Contains(text, "]:")
	if colon < 0 || isIPv6Only {
		return text, "", false
	}
	return text[:colon], text[colon+1:], true
}

// parseAddress parses an address, a prefix or a range of addresses.
func parseAddress(text string) (json.RawMessage, bool) {
	text = strings.NewReplacer("[", "", "]", "").Replace(text)
	value := parseValue(token{kind: word, text: text})
	first, _, _ := strings.Cut(text, "-")
	first, _, _ = strings.Cut(first, "/")
	_, err := netip.ParseAddr(first)
	return value, err == nil
}
