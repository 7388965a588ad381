package nftlist

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// parseTranslation reads [FAMILY] [FORM] [to [ADDRESS][:PORT]] [FLAGS], which follows dnat, snat,
// masquerade, redirect or tproxy.
func parseTranslation(c *cursor, kind string) statement {
	fields := map[string]any{}
	if t := c.peek(0); c.accept("ip", "ip6") {
		fields["family"] = t.text
	}
	form := parseForm(c)
	if form != "" {
		fields["type_flags"] = form
	}
	if c.acceptBefore(1, "to") {
		parseTarget(c, fields)
	} else {
		c.require(len(fields) == 0)
	}
	if kind == "tproxy" {
		_, hasPort := fields["port"]
		c.require(hasPort) // nft does not list the port if it is a value of a map
	}
	flags := parseNATFlags(c)
	if form == "prefix" {
		flags = append(flags, "netmap")
	}
	if len(flags) > 0 {
		fields["flags"] = flags
	}
	s := statement{kind: kind}
	if len(fields) > 0 {
		s.body = encode(fields)
	}
	return s
}

// parseForm reads the form of the values of a map: addr . port, prefix or interval.
func parseForm(c *cursor) string {
	switch {
	case c.peek(0).is("addr") && c.peek(1).is(".") && c.peek(2).is("port"):
		c.skip(3)
		return "concat"
	case c.peek(0).is("prefix", "interval"):
		return c.next().text
	}
	return ""
}

// parseNATFlags reads a list of flags of a translation, which may be empty.
func parseNATFlags(c *cursor) []string {
	var flags []string
	for t := c.peek(0); c.accept("random", "fully-random", "persistent"); t = c.peek(0) {
		flags = append(flags, t.text)
		if !c.acceptBefore(1, ",") {
			break
		}
	}
	return flags
}

// parseTarget reads [ADDRESS][:PORT] and sets the fields addr and port. Each may be a value of a
// map.
func parseTarget(c *cursor, fields map[string]any) {
	mapped := *c
	addr := parseMapped(&mapped)
	if !mapped.failed {
		*c = mapped
		fields["addr"] = addr
		if !strings.HasPrefix(c.peek(0).text, ":") {
			return
		}
	}
	target := c.word()
	text, port, hasPort := splitTarget(target.text)
	if text != "" {
		value, ok := parseAddress(text)
		c.require(ok && mapped.failed)
		fields["addr"] = value
	}
	if !hasPort || c.failed {
		return
	}
	target.text = port
	if _, isNumber := parseNumber(port[:min(1, len(port))]); isNumber {
		fields["port"] = parseValue(target)
		return
	}
	// The port is a value of a map, whose key begins after the colon.
	c.tokens = append([]token{target}, c.tokens...)
	fields["port"] = parseMapped(c)
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
