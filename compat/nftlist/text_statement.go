package nftlist

import (
	"strconv"
	"strings"
)

// counterOf reads counter [packets N bytes N | name "NAME"].
func counterOf(tokens []token) (int, statement) {
	switch {
	case len(tokens) > 4 && tokens[1].is("packets") && tokens[3].is("bytes"):
		return 5, statement{kind: "counter"}
	case len(tokens) > 2 && tokens[1].is("name"):
		return 3, statement{kind: "counter", body: encode(tokens[2].text)}
	}
	return 1, statement{kind: "counter"}
}

// logOf reads log and its options. One that queues packets to a program is no mere log.
func logOf(tokens []token) (int, statement) {
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
			for size+1 < len(tokens) && tokens[size].isMark(",") {
				size += 2
			}
			continue
		}
		break
	}
	return min(size, len(tokens)), statement{kind: "log", body: encode(options)}
}

// limitOf reads limit rate [over] N[ UNIT]/TIME [burst N UNIT], or limit name "NAME".
func limitOf(tokens []token) (int, statement) {
	if len(tokens) > 2 && tokens[1].is("name") {
		return 3, statement{kind: "limit", body: encode(tokens[2].text)}
	}
	if len(tokens) < 3 || !tokens[1].is("rate") {
		return 0, statement{}
	}
	of := map[string]any{}
	size := 2
	if tokens[size].is("over") {
		of["inv"] = true
		size++
	}
	if size+1 < len(tokens) && strings.Contains(tokens[size+1].text, "bytes/") {
		unit, per, _ := strings.Cut(tokens[size+1].text, "/")
		rate, ok := numberOf(tokens[size].text)
		if !ok {
			return 0, statement{}
		}
		of["rate"], of["rate_unit"], of["per"] = rate, unit, per
		size += 2
	} else {
		if size >= len(tokens) {
			return 0, statement{}
		}
		number, per, _ := strings.Cut(tokens[size].text, "/")
		rate, ok := numberOf(number)
		if !ok {
			return 0, statement{}
		}
		of["rate"], of["per"] = rate, per
		size++
	}
	if size+2 < len(tokens) && tokens[size].is("burst") {
		burst, ok := numberOf(tokens[size+1].text)
		if !ok {
			return 0, statement{}
		}
		of["burst"] = burst
		if unit := tokens[size+2].text; unit != "packets" {
			of["burst_unit"] = unit
		}
		size += 3
	}
	return size, statement{kind: "limit", body: encode(of)}
}

// quotaOf reads quota [over|until] N UNIT [used N UNIT], or quota name "NAME".
func quotaOf(tokens []token) (int, statement) {
	if len(tokens) > 2 && tokens[1].is("name") {
		return 3, statement{kind: "quota", body: encode(tokens[2].text)}
	}
	of := map[string]any{}
	size := 1
	if len(tokens) > 1 && (tokens[1].is("over") || tokens[1].is("until")) {
		of["inv"] = tokens[1].is("over")
		size++
	}
	if size+1 >= len(tokens) {
		return 0, statement{}
	}
	number, ok := numberOf(tokens[size].text)
	if !ok {
		return 0, statement{}
	}
	of["val"], of["val_unit"] = number, tokens[size+1].text
	size += 2
	if size+2 < len(tokens) && tokens[size].is("used") {
		size += 3
	}
	return size, statement{kind: "quota", body: encode(of)}
}

// connectionLimitOf reads ct count [over] N.
func connectionLimitOf(tokens []token) (int, statement) {
	of := map[string]any{}
	size := 2
	if len(tokens) > size && tokens[size].is("over") {
		of["inv"] = true
		size++
	}
	if size >= len(tokens) {
		return 0, statement{}
	}
	number, ok := numberOf(tokens[size].text)
	if !ok {
		return 0, statement{}
	}
	of["val"] = number
	return size + 1, statement{kind: "ct count", body: encode(of)}
}

// connectionObjectOf reads ct helper|timeout|expectation set "NAME".
func connectionObjectOf(tokens []token) (int, statement) {
	if len(tokens) < 4 || !tokens[0].is("ct") || !tokens[2].is("set") || tokens[3].kind != quoted {
		return 0, statement{}
	}
	switch kind := tokens[1].text; kind {
	case "helper", "timeout", "expectation":
		return 4, statement{kind: "ct " + kind, body: encode(tokens[3].text)}
	}
	return 0, statement{}
}

// changeOf reads add|update|delete @SET { KEY [timeout TIME] }.
func changeOf(tokens []token) (int, statement) {
	if len(tokens) < 5 || !strings.HasPrefix(tokens[1].text, "@") || !tokens[2].isMark("{") {
		return 0, statement{}
	}
	size, key := operandOf(tokens[3:])
	if size == 0 {
		return 0, statement{}
	}
	size += 3
	if size+1 < len(tokens) && tokens[size].is("timeout") {
		seconds, ok := secondsOf(tokens[size+1].text)
		if !ok {
			return 0, statement{}
		}
		key = encode(map[string]any{"elem": map[string]any{"val": key, "timeout": seconds}})
		size += 2
	}
	if size >= len(tokens) || !tokens[size].isMark("}") {
		return 0, statement{}
	}
	return size + 1, statement{kind: "set", body: encode(map[string]any{
		"op": tokens[0].text, "set": tokens[1].text, "elem": key,
	})}
}

// secondsOf parses a time such as 1d2h3m4s.
func secondsOf(text string) (uint64, bool) {
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

// rejectOf reads reject [with tcp reset | with KIND [type] CODE].
func rejectOf(tokens []token) (int, statement) {
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
		"type": tokens[2].text, "expr": valueOf(tokens[size]),
	})}
}
