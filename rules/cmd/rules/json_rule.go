package main

import (
	"fmt"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// jsonMatchOf returns the JSON form of a match.
func jsonMatchOf(match rules.Match) jsonMatch {
	j := jsonMatch{Match: "unknown", Text: match.String()}
	switch m := match.(type) {
	case rules.MatchInterface:
		j.Match, j.Of, j.Not, j.Values = "interface", pick(m.Out, "out", "in"), m.Not,
			texts(m.Names)
	case rules.MatchFamily:
		j.Match, j.Values = "family", []string{m.Family.String()}
	case rules.MatchAddr:
		j.Match, j.Of, j.Not, j.Set = "address", side(m.Side), m.Not, m.Set
		if m.Set == "" {
			j.Values = addressTexts(m)
		}
	case rules.MatchProtocol:
		j.Match, j.Not, j.Values = "protocol", m.Not, texts(m.Protocols)
	case rules.MatchPort:
		j.Match, j.Of, j.Not, j.Values = "port", side(m.Side), m.Not, texts(m.Ports)
	case rules.MatchTCPFlags:
		j.Match, j.Not, j.Values, j.Mask = "tcp-flags", m.Not, []string{m.Value.String()},
			m.Mask.String()
	case rules.MatchOwner:
		j.Match, j.Of, j.Not, j.Values = "owner", pick(m.Group, "group", "user"), m.Not,
			texts(m.IDs)
	case rules.MatchCgroup:
		j.Match, j.Values = "cgroup", []string{m.Path}
	case rules.MatchMark:
		j.Match, j.Of, j.Not = "mark", pick(m.Conntrack, "connection", "packet"), m.Not
		j.Values, j.Mask = []string{hex(m.Value)}, hex(m.Mask)
	case rules.MatchState:
		j.Match, j.Not, j.Values = "state", m.Not, []string{m.States.String()}
	}
	return j
}

// jsonActionOf returns the JSON form of an action.
func jsonActionOf(action rules.Action) jsonAction {
	j := jsonAction{Action: "unknown", Text: action.String()}
	switch a := action.(type) {
	case rules.Verdict:
		j.Action = a.String()
	case rules.Jump:
		j.Action, j.Chain = pick(a.Goto, "goto", "jump"), a.Chain
	case rules.RedirectTo:
		j.Action, j.Port = "redirect", a.Port
	case rules.DNATPort:
		j.Action, j.Port = "dnat", a.Port
	case rules.DNATTo:
		j.Action, j.Port = "dnat", a.Port
	case rules.SNATTo:
		j.Action = "snat"
	case rules.TProxy:
		j.Action, j.Port = "tproxy", a.Port
	case rules.TProxyDrop:
		j.Action, j.Port, j.Value, j.Mask = "tproxy-or-drop", a.Port, hex(a.Value), hex(a.Mask)
	case rules.SetMark:
		j.Action, j.Value, j.Mask = "set-mark", hex(a.Value), hex(a.Mask)
	case rules.SaveMark:
		j.Action = "save-mark"
	case rules.RestoreMark:
		j.Action = "restore-mark"
	case rules.SetZone:
		j.Action, j.Zone, j.Helper = "set-zone", a.Zone, a.Helper
	case rules.Count:
		j.Action = "count"
	case rules.NoEffect:
		j.Action = "no-effect"
	}
	return j
}

// texts returns the texts of the values.
func texts[T fmt.Stringer](values []T) []string {
	return convertEach(values, func(v *T) string { return (*v).String() })
}

// addressTexts returns the texts of the addresses of a match.
func addressTexts(m rules.MatchAddr) []string {
	return convertEach(m.Ranges, func(r *netipx.IPRange) string {
		return rules.FormatAddrRange(*r)
	})
}

// side returns the name of a side in JSON.
func side(s rules.Side) string { return pick(s == rules.Destination, "destination", "source") }

// pick returns yes if the condition is true, and no otherwise.
func pick(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// hex returns the number in hexadecimal.
func hex(n uint32) string { return fmt.Sprintf("%#x", n) }
