package nftlist

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parseCounter reads counter [packets N bytes N | name "NAME"].
func parseCounter(tokens []token) (int, statement) {
	switch {
	case len(tokens) > 4 && tokens[1].is("packets") && tokens[3].is("bytes"):
		return 5, statement{kind: "counter"}
	case len(tokens) > 2 && tokens[1].is("name"):
		return 3, statement{kind: "counter", body: encode(tokens[2].text)}
	}
	return 1, statement{kind: "counter"}
}

// parseLog reads log and its options. It ignores the flags.
func parseLog(tokens []token) (int, statement) {
	size := 1
	options := map[string]string{}
	for size+1 < len(tokens) && tokens[size].kind == word {
		option, value := tokens[size].text, tokens[size+1]
		switch option {
		case "prefix", "level", "group", "snaplen", "queue-threshold":
			options[option] = value.text
			size += 2
			continue
		case "flags":
			size += 2
			if value.is("tcp") || value.is("ip") {
				// flags tcp sequence,options and flags ip options
				size++
			}
			for size+1 < len(tokens) && tokens[size].isPunctuation(",") {
				size += 2
			}
			continue
		}
		break
	}
	return min(size, len(tokens)), statement{kind: "log", body: encode(options)}
}

// parseLimit reads limit rate [over] N[ UNIT]/TIME [burst N UNIT], or limit name "NAME".
func parseLimit(tokens []token) (int, statement) {
	if len(tokens) > 2 && tokens[1].is("name") {
		return 3, statement{kind: "limit", body: encode(tokens[2].text)}
	}
	if len(tokens) < 3 || !tokens[1].is("rate") {
		return 0, statement{}
	}
	fields := map[string]any{}
	size := 2
	if tokens[size].is("over") {
		fields["inv"] = true
		size++
	}
	if size+1 < len(tokens) && strings.Contains(tokens[size+1].text, "bytes/") {
		unit, per, _ := strings.Cut(tokens[size+1].text, "/")
		rate, ok := parseNumber(tokens[size].text)
		if !ok {
			return 0, statement{}
		}
		fields["rate"], fields["rate_unit"], fields["per"] = rate, unit, per
		size += 2
	} else {
		if size >= len(tokens) {
			return 0, statement{}
		}
		number, per, _ := strings.Cut(tokens[size].text, "/")
		rate, ok := parseNumber(number)
		if !ok {
			return 0, statement{}
		}
		fields["rate"], fields["per"] = rate, per
		size++
	}
	if size+2 < len(tokens) && tokens[size].is("burst") {
		burst, ok := parseNumber(tokens[size+1].text)
		if !ok {
			return 0, statement{}
		}
		fields["burst"] = burst
		if unit := tokens[size+2].text; unit != "packets" {
			fields["burst_unit"] = unit
		}
		size += 3
	}
	return size, statement{kind: "limit", body: encode(fields)}
}

// parseQuota reads quota [over|until] N UNIT [used N UNIT], or quota name "NAME".
func parseQuota(tokens []token) (int, statement) {
	if len(tokens) > 2 && tokens[1].is("name") {
		return 3, statement{kind: "quota", body: encode(tokens[2].text)}
	}
	fields := map[string]any{}
	size := 1
	if len(tokens) > 1 && (tokens[1].is("over") || tokens[1].is("until")) {
		fields["inv"] = tokens[1].is("over")
		size++
	}
	if size+1 >= len(tokens) {
		return 0, statement{}
	}
	number, ok := parseNumber(tokens[size].text)
	if !ok {
		return 0, statement{}
	}
	fields["val"], fields["val_unit"] = number, tokens[size+1].text
	size += 2
	if size+2 < len(tokens) && tokens[size].is("used") {
		size += 3
	}
	return size, statement{kind: "quota", body: encode(fields)}
}

// parseConnectionLimit reads ct count [over] N.
func parseConnectionLimit(tokens []token) (int, statement) {
	fields := map[string]any{}
	size := 2
	if len(tokens) > size && tokens[size].is("over") {
		fields["inv"] = true
		size++
	}
	if size >= len(tokens) {
		return 0, statement{}
	}
	number, ok := parseNumber(tokens[size].text)
	if !ok {
		return 0, statement{}
	}
	fields["val"] = number
	return size + 1, statement{kind: "ct count", body: encode(fields)}
}

// parseConnectionObject reads ct helper|timeout|expectation set "NAME".
func parseConnectionObject(tokens []token) (int, statement) {
	if len(tokens) < 4 || !tokens[0].is("ct") || !tokens[2].is("set") || tokens[3].kind != quoted {
		return 0, statement{}
	}
	switch kind := tokens[1].text; kind {
	case "helper", "timeout", "expectation":
		return 4, statement{kind: "ct " + kind, body: encode(tokens[3].text)}
	}
	return 0, statement{}
}

// parseSetChange reads add|update|delete @SET { KEY [timeout TIME] [LIMIT|COUNTER]... }.
func parseSetChange(tokens []token) (int, statement) {
	if len(tokens) < 5 || !strings.HasPrefix(tokens[1].text, "@") || !tokens[2].isPunctuation("{") {
		return 0, statement{}
	}
	size, key := parseOperand(tokens[3:])
	if size == 0 {
		return 0, statement{}
	}
	size += 3
	if size+1 < len(tokens) && tokens[size].is("timeout") {
		seconds, ok := parseSeconds(tokens[size+1].text)
		if !ok {
			return 0, statement{}
		}
		key = encode(map[string]any{"elem": map[string]any{"val": key, "timeout": seconds}})
		size += 2
	}
	fields := map[string]any{"op": tokens[0].text, "set": tokens[1].text, "elem": key}
	var statements []map[string]json.RawMessage
	for size < len(tokens) && (tokens[size].is("limit") || tokens[size].is("counter")) {
		count, s := parseStatement(tokens[size:])
		if count == 0 {
			return 0, statement{}
		}
		statements = append(statements, map[string]json.RawMessage{s.kind: s.body})
		size += count
	}
	if len(statements) > 0 {
		fields["stmt"] = statements
	}
	if size >= len(tokens) || !tokens[size].isPunctuation("}") {
		return 0, statement{}
	}
	return size + 1, statement{kind: "set", body: encode(fields)}
}

// parseSeconds parses a time such as 1d2h3m4s and returns it in seconds.
func parseSeconds(text string) (uint64, bool) {
	seconds := uint64(0)
	for text != "" {
		i := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
		if i <= 0 {
			return 0, false
		}
		n, err := strconv.ParseUint(text[:i], 10, 32)
		factor, ok := map[byte]uint64{'d': 86400, 'h': 3600, 'm': 60, 's': 1}[text[i]]
		if err != nil || !ok {
			return 0, false
		}
		seconds += n * factor
		text = text[i+1:]
	}
	return seconds, true
}

// parseReject reads reject [with tcp reset | with KIND [type] CODE].
func parseReject(tokens []token) (int, statement) {
	if len(tokens) < 4 || !tokens[1].is("with") {
		return 1, statement{kind: "reject"}
	}
	if tokens[2].is("tcp") && tokens[3].is("reset") {
		return 4, statement{kind: "reject", body: encode(map[string]string{"type": "tcp reset"})}
	}
	size := 3
	if tokens[3].is("type") {
		size++
	}
	if size >= len(tokens) || tokens[size].kind != word {
		return 0, statement{}
	}
	return size + 1, statement{kind: "reject", body: encode(map[string]any{
		"type": tokens[2].text, "expr": parseValue(tokens[size]),
	})}
}
