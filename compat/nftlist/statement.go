package nftlist

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A statement of a rule in the form of JSON. The kind is empty if it is unknown.
type statement struct {
	kind string
	body json.RawMessage
	text string // in an explanation of what is unknown
}

// UnmarshalJSON decodes an object of one statement. nft writes a string for some that have no form
// in JSON, such as a jump to an anonymous chain.
func (s *statement) UnmarshalJSON(object []byte) error {
	*s = statement{text: string(object)}
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) == nil && len(fields) == 1 {
		for s.kind, s.body = range fields {
			s.text = s.kind + " " + string(s.body)
		}
	}
	return nil
}

// rulesOf decodes the rules of a chain.
func (in *reader) rulesOf(c chainObject) []rules.Rule {
	var list []rules.Rule
	for _, r := range in.rules[place{c.Family, c.Table, c.Name}] {
		d := decoder{in: in, at: place{c.Family, c.Table, ""}}
		d.decode(r)
		list = append(list, d.rule)
	}
	return list
}

// noteChanges records the names of the sets that a statement changes.
func (in *reader) noteChanges(s statement) {
	if s.kind != "set" && s.kind != "map" {
		return
	}
	var change struct {
		Set string `json:"set"`
		Map string `json:"map"`
	}
	if json.Unmarshal(s.body, &change) == nil {
		in.changed[strings.TrimPrefix(change.Set, "@")] = true
		in.changed[strings.TrimPrefix(change.Map, "@")] = true
	}
}

// decoder decodes the statements of a rule in order.
type decoder struct {
	in   *reader
	at   place // the table
	rule rules.Rule
	// hasActed reports that the rule has an action other than Count: later matches become Require.
	hasActed bool
	// needsConnection reports that the last action ended the rule for packets without a connection.
	needsConnection bool
}

func (d *decoder) decode(r ruleObject) {
	d.rule.Handle, d.rule.Comment, d.rule.Line = rules.Handle(r.Handle), r.Comment, r.line
	for _, s := range r.Statements {
		d.statement(s)
	}
	rules.SortMatches(d.rule.Matches)
}

// statement decodes a statement. An unsupported one may have any effect.
func (d *decoder) statement(s statement) {
	if d.needsConnection {
		d.needsConnection = false
		d.require(rules.MatchMark{Conntrack: true})
	}
	isNull := len(s.body) == 0 || string(s.body) == "null"
	switch {
	case s.kind == "match":
		d.match(s)
	case s.kind == "counter", s.kind == "log" && !bytes.Contains(s.body, []byte("queue")):
		d.rule.Actions = append(d.rule.Actions, rules.Count{})
	case s.kind == "accept" && isNull:
		d.act(rules.Accept)
	case s.kind == "drop" && isNull:
		d.act(rules.Drop)
	case s.kind == "return" && isNull:
		d.act(rules.Return)
	case s.kind == "notrack" && isNull:
		d.act(rules.Notrack{})
	case s.kind == "redirect" && isNull:
		d.act(rules.RedirectTo{})
	case s.kind == "tproxy" && d.tproxy(s.body):
	default:
		if a := actionOf(s.kind, s.body); a != nil {
			d.act(a)
			return
		}
		d.unknown(s.text)
	}
}

func (d *decoder) act(a rules.Action) {
	d.rule.Actions = append(d.rule.Actions, a)
	d.hasActed = true
	d.needsConnection = endsWithoutConnection(a)
}

// unknown adds an unsupported statement.
func (d *decoder) unknown(text string) {
	d.act(rules.Unknown{Text: text, Effect: rules.AnyEffect, Data: rules.NoData})
}

// actionOf decodes a statement with a body; it returns nil if it is unsupported.
func actionOf(kind string, body json.RawMessage) rules.Action {
	switch kind {
	case "jump", "goto":
		var to struct {
			Target string `json:"target"`
		}
		if exactly(body, &to) && to.Target != "" {
			return rules.Jump{Chain: to.Target, Goto: kind == "goto"}
		}
	case "redirect":
		var to struct {
			Port *uint16 `json:"port"`
		}
		if exactly(body, &to) && to.Port != nil && *to.Port != 0 {
			return rules.RedirectTo{Port: *to.Port}
		}
	case "mangle":
		return mangle(body)
	}
	return nil
}

// tproxy decodes tproxy to a port, which in a table of both families may be limited to one. It
// reports whether the statement is supported.
func (d *decoder) tproxy(body json.RawMessage) bool {
	var to struct {
		Port   *uint16 `json:"port"`
		Family string  `json:"family"`
	}
	if !exactly(body, &to) || to.Port == nil || *to.Port == 0 {
		return false
	}
	if to.Family != "" && to.Family != d.at.family {
		family, ok := families()[to.Family]
		if !ok || family == rules.Inet || d.at.family != "inet" {
			return false
		}
		d.require(rules.MatchFamily{Family: family})
	}
	d.act(rules.TProxy{Port: *to.Port})
	return true
}

// mangle decodes a statement that sets a mark or a zone; it returns nil for others.
func mangle(body json.RawMessage) rules.Action {
	var m struct{ Key, Value json.RawMessage }
	if !exactly(body, &m) {
		return nil
	}
	key := keyOf(m.Key)
	from, isMark := markValueOf(m.Value)
	var number uint32
	isNumber := json.Unmarshal(m.Value, &number) == nil && string(m.Value) != "null"
	switch {
	case key == "meta mark" && isNumber:
		return rules.SetMark{Value: number, Mask: ^uint32(0)}
	case key == "meta mark" && isMark:
		return setPacketMark(from)
	case key == "ct mark" && isNumber:
		return rules.MixMark{Conntrack: true, Xor: number}
	case key == "ct mark" && isMark:
		return setConntrackMark(from)
	case key == "ct zone" && isNumber && number <= 0xffff:
		return rules.SetZone{Zone: uint16(number)}
	}
	return nil
}

// keyOf returns a key of meta or ct, such as "meta mark", or a field of a payload, such as "tcp
// dport"; empty for any other expression.
func keyOf(expression json.RawMessage) string {
	var e map[string]json.RawMessage
	if json.Unmarshal(expression, &e) != nil || len(e) != 1 {
		return ""
	}
	for kind, body := range e {
		switch kind {
		case "meta", "ct":
			var of struct {
				Key string `json:"key"`
			}
			if exactly(body, &of) {
				return kind + " " + of.Key
			}
		case "payload":
			var of struct {
				Protocol string `json:"protocol"`
				Field    string `json:"field"`
			}
			if exactly(body, &of) {
				return of.Protocol + " " + of.Field
			}
		}
	}
	return ""
}

// exactly decodes an object that has no other fields.
func exactly(body json.RawMessage, to any) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return string(body) != "null" && decoder.Decode(to) == nil
}

// match decodes a comparison.
func (d *decoder) match(s statement) {
	var m struct {
		Op          string
		Left, Right json.RawMessage
	}
	if exactly(s.body, &m) {
		if matches := d.matches(m.Op, m.Left, m.Right); matches != nil {
			d.require(matches...)
			return
		}
	}
	// Random or changing values are not properties of the packet.
	for _, word := range []string{
		"numgen", "random", "hash", "osf", "time", "day", "hour", "count", "expiration", "bytes",
		"packets",
	} {
		if bytes.Contains(s.body, []byte(word)) {
			d.unknown(s.text)
			return
		}
	}
	d.require(rules.Unknown{Text: s.text, Effect: rules.Reads, Data: rules.NoData})
}

// require adds conditions.
func (d *decoder) require(matches ...rules.Match) {
	for _, m := range matches {
		if d.hasActed {
			d.rule.Actions = append(d.rule.Actions, rules.Require{Match: m})
		} else {
			d.rule.Matches = append(d.rule.Matches, m)
		}
	}
}

// hasPorts reports whether the rule is limited to protocols with ports.
func (d *decoder) hasPorts() bool {
	return slices.ContainsFunc(d.rule.Matches, func(m rules.Match) bool {
		p, ok := m.(rules.MatchProtocol)
		return ok && !p.Not && !slices.ContainsFunc(p.Protocols, func(p rules.Protocol) bool {
			return !p.HasPorts()
		})
	})
}
