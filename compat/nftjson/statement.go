package nftjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// rulesOf decodes the rules of a chain.
func (in *reader) rulesOf(c chainObject) []rules.Rule {
	var list []rules.Rule
	for _, r := range in.rules {
		if r.Family == c.Family && r.Table == c.Table && r.Chain == c.Name {
			d := decoder{in: in, at: place{c.Family, c.Table, ""}}
			d.decode(r)
			list = append(list, d.rule)
		}
	}
	return list
}

// noteChanges records the names of the sets that a statement changes.
func (in *reader) noteChanges(statement map[string]json.RawMessage) {
	for _, kind := range []string{"set", "map"} {
		var change struct {
			Set string `json:"set"`
			Map string `json:"map"`
		}
		if json.Unmarshal(statement[kind], &change) == nil {
			in.changed[strings.TrimPrefix(change.Set, "@")] = true
			in.changed[strings.TrimPrefix(change.Map, "@")] = true
		}
	}
}

// decoder decodes the statements of a rule in order.
type decoder struct {
	in   *reader
	at   place // the table
	rule rules.Rule
	// hasActed reports that the rule has an action other than Count: later matches become Require.
	hasActed bool
}

func (d *decoder) decode(r ruleObject) {
	d.rule.Handle, d.rule.Comment = rules.Handle(r.Handle), r.Comment
	for _, statement := range r.Expr {
		if len(statement) != 1 {
			text, _ := json.Marshal(statement)
			d.unknown(string(text))
			continue
		}
		for kind, body := range statement {
			d.statement(kind, body)
		}
	}
	rules.SortMatches(d.rule.Matches)
}

// statement decodes a statement. An unsupported one may have any effect.
func (d *decoder) statement(kind string, body json.RawMessage) {
	isNull := len(body) == 0 || string(body) == "null"
	switch {
	case kind == "match":
		d.match(body)
	case kind == "counter", kind == "log" && !bytes.Contains(body, []byte("queue")):
		d.rule.Actions = append(d.rule.Actions, rules.Count{})
	case kind == "accept" && isNull:
		d.act(rules.Accept)
	case kind == "drop" && isNull:
		d.act(rules.Drop)
	case kind == "return" && isNull:
		d.act(rules.Return)
	case kind == "notrack" && isNull:
		d.act(rules.Notrack{})
	case kind == "redirect" && isNull:
		d.act(rules.RedirectTo{})
	default:
		if a := actionOf(kind, body); a != nil {
			d.act(a)
			return
		}
		d.unknown(fmt.Sprintf("%s %s", kind, body))
	}
}

func (d *decoder) act(a rules.Action) {
	d.rule.Actions = append(d.rule.Actions, a)
	d.hasActed = true
}

// unknown adds an unsupported statement.
func (d *decoder) unknown(text string) {
	d.act(rules.Unknown{Text: text, Effect: rules.Anything, Data: rules.NoData})
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
	case "redirect", "tproxy":
		var to struct {
			Port *uint16 `json:"port"`
		}
		if !exactly(body, &to) || to.Port == nil || *to.Port == 0 {
			return nil
		}
		if kind == "tproxy" {
			return rules.TProxy{Port: *to.Port}
		}
		return rules.RedirectTo{Port: *to.Port}
	case "mangle":
		return mangle(body)
	}
	return nil
}

// mangle decodes a statement that sets a mark or a zone; it returns nil for others.
func mangle(body json.RawMessage) rules.Action {
	var m struct{ Key, Value json.RawMessage }
	if !exactly(body, &m) {
		return nil
	}
	key := keyOf(m.Key)
	from := keyOf(m.Value)
	var number uint32
	isNumber := json.Unmarshal(m.Value, &number) == nil && string(m.Value) != "null"
	switch {
	case key == "meta mark" && isNumber:
		return rules.SetMark{Value: number, Mask: ^uint32(0)}
	case key == "meta mark" && from == "ct mark":
		return rules.RestoreMark{}
	case key == "ct mark" && from == "meta mark":
		return rules.SaveMark{}
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
func (d *decoder) match(body json.RawMessage) {
	var m struct {
		Op          string
		Left, Right json.RawMessage
	}
	if exactly(body, &m) {
		if matches := d.matches(m.Op, m.Left, m.Right); matches != nil {
			d.require(matches...)
			return
		}
	}
	text := string(body)
	// Random or changing values are not properties of the packet.
	for _, word := range []string{
		"numgen", "random", "hash", "osf", "time", "day", "hour", "count", "expiration", "bytes",
		"packets",
	} {
		if strings.Contains(text, word) {
			d.unknown("match " + text)
			return
		}
	}
	d.require(rules.Unknown{Text: "match " + text, Effect: rules.Reads, Data: rules.NoData})
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
