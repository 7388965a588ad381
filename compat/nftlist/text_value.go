package nftlist

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
)

// encode returns a value as JSON.
func encode(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only strings, numbers, lists and maps are encoded
	}
	return text
}

// unsupportedExpression returns an expression that the compiler does not support. It contains only
// the text.
func unsupportedExpression(tokens []token) json.RawMessage {
	var text strings.Builder
	for _, t := range tokens {
		text.WriteString(t.text + " ")
	}
	return encode(map[string]string{"text": text.String()})
}

// parseValue parses a value: a string, a number, a prefix, a range, or "exists" or "missing".
func parseValue(t token) json.RawMessage {
	switch {
	case t.kind == quoted && !strings.HasPrefix(t.text, "@"):
		return encode(t.text)
	case t.kind != word || strings.ContainsAny(t.text, `"`):
		return unsupportedExpression([]token{t})
	case t.text == "missing" || t.text == "exists":
		return encode(t.text == "exists")
	}
	if p, err := netip.ParsePrefix(t.text); err == nil {
		return encode(map[string]any{
			"prefix": map[string]any{"addr": p.Addr(), "len": p.Bits()},
		})
	}
	if n, length, ok := strings.Cut(t.text, "/"); ok {
		mark, isNumber := parseNumber(n)
		bits, isLength := parseNumber(length)
		if isNumber && isLength {
			return encode(map[string]any{"prefix": map[string]any{"addr": mark, "len": bits}})
		}
	}
	first, last, isRange := strings.Cut(t.text, "-")
	from, isFirst := parseScalar(first)
	if isRange && isFirst {
		if to, ok := parseScalar(last); ok {
			return encode(map[string]any{"range": []json.RawMessage{from, to}})
		}
	}
	if !isRange && isFirst {
		return from
	}
	return encode(t.text)
}

// parseScalar parses a number or an address.
func parseScalar(text string) (json.RawMessage, bool) {
	if n, ok := parseNumber(text); ok {
		return encode(n), true
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return encode(a), true
	}
	return nil, false
}

// parseNumber parses a decimal or hexadecimal number as nft prints it. A number with a leading zero
// is not decimal: nft reads it as octal.
func parseNumber(text string) (uint64, bool) {
	base := 10
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		text, base = digits, 16
	} else if len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(text, base, 64)
	return n, err == nil
}
