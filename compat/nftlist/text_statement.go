package nftlist

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parseCounter reads [packets N bytes N | name "NAME"], which follows counter.
func parseCounter(c *cursor) statement {
	if c.peek(0).is("packets") && c.peek(2).is("bytes") && len(c.tokens) > 3 {
		c.skip(4)
	} else if c.acceptBefore(1, "name") {
		return statement{kind: "counter", body: encode(c.next().text)}
	}
	return statement{kind: "counter"}
}

// parseLog reads the options of log. It ignores the flags.
func parseLog(c *cursor) statement {
	options := map[string]string{}
	for {
		switch option := c.peek(0).text; {
		case c.acceptBefore(1, "prefix", "level", "group", "snaplen", "queue-threshold"):
			options[option] = c.next().text
		case c.acceptBefore(1, "flags"):
			if c.next().is("tcp", "ip") {
				c.skip(1) // flags tcp sequence,options and flags ip options
			}
			for c.acceptBefore(1, ",") {
				c.skip(1)
			}
		default:
			return statement{kind: "log", body: encode(options)}
		}
	}
}

// parseLimit reads rate [over] N[ UNIT]/TIME [burst N UNIT] or name "NAME", which follows limit.
func parseLimit(c *cursor) statement {
	if c.acceptBefore(1, "name") {
		return statement{kind: "limit", body: encode(c.next().text)}
	}
	c.expect("rate")
	fields := map[string]any{}
	if c.accept("over") {
		fields["inv"] = true
	}
	if strings.Contains(c.peek(1).text, "bytes/") {
		fields["rate"] = c.number()
		fields["rate_unit"], fields["per"], _ = strings.Cut(c.next().text, "/")
	} else {
		number, per, _ := strings.Cut(c.next().text, "/")
		rate, ok := parseNumber(number)
		c.require(ok)
		fields["rate"], fields["per"] = rate, per
	}
	if c.acceptBefore(2, "burst") {
		fields["burst"] = c.number()
		if unit := c.next().text; unit != "packets" {
			fields["burst_unit"] = unit
		}
	}
	return statement{kind: "limit", body: encode(fields)}
}

// parseQuota reads [over|until] N UNIT [used N UNIT] or name "NAME", which follows quota.
func parseQuota(c *cursor) statement {
	if c.acceptBefore(1, "name") {
		return statement{kind: "quota", body: encode(c.next().text)}
	}
	fields := map[string]any{}
	if t := c.peek(0); c.accept("over", "until") {
		fields["inv"] = t.is("over")
	}
	fields["val"], fields["val_unit"] = c.number(), c.next().text
	if c.acceptBefore(2, "used") {
		c.skip(2)
	}
	return statement{kind: "quota", body: encode(fields)}
}

// parseConnectionLimit reads [over] N, which follows ct count.
func parseConnectionLimit(c *cursor) statement {
	fields := map[string]any{}
	if c.accept("over") {
		fields["inv"] = true
	}
	fields["val"] = c.number()
	return statement{kind: "ct count", body: encode(fields)}
}

// parseSetChange reads @SET { KEY [timeout TIME] [LIMIT|COUNTER]... }, which follows add, update or
// delete.
func parseSetChange(c *cursor, op string) statement {
	set := c.next().text
	c.require(strings.HasPrefix(set, "@"))
	c.expect("{")
	key := parseOperand(c)
	if c.acceptBefore(1, "timeout") {
		seconds, ok := parseSeconds(c.next().text)
		c.require(ok)
		key = encode(map[string]any{"elem": map[string]any{"val": key, "timeout": seconds}})
	}
	fields := map[string]any{"op": op, "set": set, "elem": key}
	var statements []map[string]json.RawMessage
	for c.peek(0).is("limit", "counter") {
		s := parseStatement(c)
		statements = append(statements, map[string]json.RawMessage{s.kind: s.body})
	}
	if len(statements) > 0 {
		fields["stmt"] = statements
	}
	c.expect("}")
	return statement{kind: "set", body: encode(fields)}
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

// parseReject reads [with tcp reset | with KIND [type] CODE], which follows reject.
func parseReject(c *cursor) statement {
	if !c.acceptBefore(2, "with") {
		return statement{kind: "reject"}
	}
	kind := c.next()
	if kind.is("tcp") && c.accept("reset") {
		return statement{kind: "reject", body: encode(map[string]string{"type": "tcp reset"})}
	}
	c.accept("type")
	return statement{kind: "reject", body: encode(map[string]any{
		"type": kind.text, "expr": parseValue(c.word()),
	})}
}
