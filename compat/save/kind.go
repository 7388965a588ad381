package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A kind is a match or a target with its options.
type kind struct {
	name    string
	options []optionKind
	// open tells that its options are not known here: every word is one until an option of the rule itself.
	open bool
	// match returns what the options of a match ask for; nil for a target.
	match func(*moduleReader) []rules.Match
	// target returns what a target does, nil if nothing; nil for a match.
	target func(*moduleReader) rules.Action
}

// An optionKind is an option that a match or target has.
type optionKind struct {
	name   string
	other  string // another spelling of the name; empty for none
	values int
}

// begins tells whether a spelling of the option begins so.
func (o *optionKind) begins(text string) bool {
	return strings.HasPrefix(o.name, text) || strings.HasPrefix(o.other, text)
}

// spelled finds an option by a spelling of its name; nil if the kind has none such.
func (k *kind) spelled(name string) *optionKind {
	for i := range k.options {
		if o := &k.options[i]; o.name == name || o.other == name {
			return o
		}
	}
	return nil
}

// kindOf finds a kind by its name; nil if it is not in the list.
func kindOf(list []kind, name string) *kind {
	for i := range list {
		if list[i].name == name {
			return &list[i]
		}
	}
	return nil
}

// kinds are the matches whose options are known here.
var kinds = []kind{
	{name: "tcp", match: (*moduleReader).tcp, options: []optionKind{
		{"--dport", "--destination-port", 1},
		{"--sport", "--source-port", 1},
		{"--tcp-flags", "", 2},
		{"--syn", "", 0},
		{"--tcp-option", "", 1},
	}},
	{name: "udp", match: (*moduleReader).udp, options: []optionKind{
		{"--dport", "--destination-port", 1}, {"--sport", "--source-port", 1},
	}},
	{name: "multiport", match: (*moduleReader).multiport, options: []optionKind{
		{"--sports", "--source-ports", 1}, {"--dports", "--destination-ports", 1}, {"--ports", "--port", 1},
	}},
	{name: "mark", match: (*moduleReader).matchMark, options: []optionKind{{"--mark", "", 1}}},
	{name: "connmark", match: (*moduleReader).matchConnmark, options: []optionKind{{"--mark", "", 1}}},
	{name: "owner", match: (*moduleReader).owner, options: []optionKind{
		{"--uid-owner", "", 1}, {"--gid-owner", "", 1}, {"--socket-exists", "", 0}, {"--suppl-groups", "", 0},
	}},
	{name: "conntrack", match: (*moduleReader).state, options: []optionKind{
		{"--ctstate", "", 1},
		{"--ctproto", "", 1},
		{"--ctstatus", "", 1},
		{"--ctexpire", "", 1},
		{"--ctdir", "", 1},
		{"--ctorigsrc", "", 1},
		{"--ctorigdst", "", 1},
		{"--ctreplsrc", "", 1},
		{"--ctrepldst", "", 1},
		{"--ctorigsrcport", "", 1},
		{"--ctorigdstport", "", 1},
		{"--ctreplsrcport", "", 1},
		{"--ctrepldstport", "", 1},
	}},
	{name: "state", match: (*moduleReader).state, options: []optionKind{{"--state", "", 1}}},
	{name: "iprange", match: (*moduleReader).iprange, options: []optionKind{{"--src-range", "", 1}, {"--dst-range", "", 1}}},
	{name: "comment", match: (*moduleReader).comments, options: []optionKind{{"--comment", "", 1}}},
}

// openMatch is a match whose options are not known.
var openMatch = kind{open: true, match: (*moduleReader).unknownMatch}

func (r *moduleReader) unknownMatch() []rules.Match {
	r.unknown = true
	return nil
}

// targets are those whose meaning is known here.
var targets = []kind{
	{name: "ACCEPT", target: accepts},
	{name: "DROP", target: drops},
	{name: "RETURN", target: returns},
	{name: "LOG", target: nothing, open: true},
	{name: "NFLOG", target: nothing, open: true},
	{name: "TRACE", target: nothing, open: true},
	{name: "ULOG", target: nothing, open: true},
	{name: "MARK", target: (*moduleReader).setMark, options: []optionKind{
		{"--set-xmark", "", 1}, {"--set-mark", "", 1}, {"--and-mark", "", 1}, {"--or-mark", "", 1}, {"--xor-mark", "", 1},
	}},
	{name: "CONNMARK", target: (*moduleReader).connmark, options: []optionKind{
		{"--set-xmark", "", 1},
		{"--set-mark", "", 1},
		{"--and-mark", "", 1},
		{"--or-mark", "", 1},
		{"--xor-mark", "", 1},
		{"--save-mark", "", 0},
		{"--restore-mark", "", 0},
		{"--nfmask", "", 1},
		{"--ctmask", "", 1},
		{"--mask", "", 1},
		{"--left-shift-mark", "", 1},
		{"--right-shift-mark", "", 1},
	}},
	{name: "CT", target: (*moduleReader).zone, options: []optionKind{
		{"--zone", "", 1},
		{"--zone-orig", "", 1},
		{"--zone-reply", "", 1},
		{"--notrack", "", 0},
		{"--helper", "", 1},
		{"--timeout", "", 1},
		{"--ctevents", "", 1},
		{"--expevents", "", 1},
	}},
	{name: "TPROXY", target: (*moduleReader).tproxy, options: []optionKind{
		{"--on-port", "", 1}, {"--on-ip", "", 1}, {"--tproxy-mark", "", 1},
	}},
	{name: "REDIRECT", target: (*moduleReader).redirect, options: []optionKind{
		{"--to-ports", "", 1}, {"--random", "", 0}, {"--random-fully", "", 0},
	}},
	{name: "DNAT", target: (*moduleReader).dnat, options: []optionKind{
		{"--to-destination", "", 1}, {"--random", "", 0}, {"--persistent", "", 0},
	}},
}

// openTarget is a target that is not known.
var openTarget = kind{open: true, target: (*moduleReader).unknownTarget}

func (r *moduleReader) unknownTarget() rules.Action {
	r.unknown = true
	return nil
}

func accepts(*moduleReader) rules.Action { return rules.Accept }
func drops(*moduleReader) rules.Action   { return rules.Drop }
func returns(*moduleReader) rules.Action { return rules.Return }
func nothing(*moduleReader) rules.Action { return nil }
