package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An extension is a match or target of xtables with the options that it accepts.
type extension struct {
	name    string
	options []optionKind
	// open reports that the match or target may have options that are not in this list. Each
	// following word that is no option of the rule may be such an option. The listed options show
	// which words are values, because a value may look like an option.
	open bool
	// match returns the matches for the given options. It is nil for a target.
	match func(*moduleReader) []rules.Match
	// target returns the action for the given options, or nil if the target has no effect on
	// packets. It is nil for a match.
	target func(*moduleReader) rules.Action
}

// An optionKind is an option that a match or target accepts. An option in a rule is an [option].
type optionKind struct {
	name   string
	other  string // another spelling of the name, or empty
	values int    // the number of values
}

// begins reports whether the text is a prefix of a spelling of the option.
func (o *optionKind) begins(text string) bool {
	return strings.HasPrefix(o.name, text) || strings.HasPrefix(o.other, text)
}

// optionSpelled returns the option with the spelling, or nil.
func (k *extension) optionSpelled(name string) *optionKind {
	for i := range k.options {
		if o := &k.options[i]; o.name == name || o.other == name {
			return o
		}
	}
	return nil
}

// findExtension returns the extension with the name, or nil.
func findExtension(list []extension, name string) *extension {
	for i := range list {
		if list[i].name == name {
			return &list[i]
		}
	}
	return nil
}

// matchExtensions contains the matches whose options are all known.
var matchExtensions = []extension{
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
	{name: "sctp", match: (*moduleReader).sctp, options: []optionKind{
		{"--dport", "--destination-port", 1},
		{"--sport", "--source-port", 1},
		{"--chunk-types", "", 2},
	}},
	{name: "dccp", match: (*moduleReader).dccp, options: []optionKind{
		{"--dport", "--destination-port", 1},
		{"--sport", "--source-port", 1},
		{"--dccp-types", "", 1},
		{"--dccp-option", "", 1},
	}},
	{name: "multiport", match: (*moduleReader).multiport, options: []optionKind{
		{"--sports", "--source-ports", 1},
		{"--dports", "--destination-ports", 1},
		{"--ports", "--port", 1},
	}},
	{name: "mark", match: (*moduleReader).matchMark, options: []optionKind{{"--mark", "", 1}}},
	{
		name: "connmark", match: (*moduleReader).matchConnmark,
		options: []optionKind{{"--mark", "", 1}},
	},
	{name: "owner", match: (*moduleReader).owner, options: []optionKind{
		{"--uid-owner", "", 1},
		{"--gid-owner", "", 1},
		{"--socket-exists", "", 0},
		{"--suppl-groups", "", 0},
	}},
	{name: "conntrack", match: (*moduleReader).connection, options: []optionKind{
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
	{name: "state", match: (*moduleReader).connection, options: []optionKind{{"--state", "", 1}}},
	{
		name: "iprange", match: (*moduleReader).iprange,
		options: []optionKind{{"--src-range", "", 1}, {"--dst-range", "", 1}},
	},
	{name: "comment", match: (*moduleReader).comments, options: []optionKind{{"--comment", "", 1}}},
	{name: "addrtype", match: (*moduleReader).addrType, options: []optionKind{
		{"--src-type", "", 1},
		{"--dst-type", "", 1},
		{"--limit-iface-in", "", 0},
		{"--limit-iface-out", "", 0},
	}},
	{name: "socket", match: (*moduleReader).socket, options: []optionKind{
		{"--transparent", "", 0}, {"--nowildcard", "", 0}, {"--restore-skmark", "", 0},
	}},
	{name: "rpfilter", match: (*moduleReader).reversePath, options: []optionKind{
		{"--loose", "", 0}, {"--validmark", "", 0}, {"--accept-local", "", 0}, {"--invert", "", 0},
	}},
	{name: "icmp", match: (*moduleReader).icmp, options: []optionKind{{"--icmp-type", "", 1}}},
	{name: "icmp6", match: (*moduleReader).icmpv6, options: []optionKind{{"--icmpv6-type", "", 1}}},
}

// targetExtensions contains the targets that the model supports.
var targetExtensions = []extension{
	{name: "ACCEPT", target: accepts},
	{name: "DROP", target: drops},
	{name: "RETURN", target: returns},
	{name: "MARK", target: (*moduleReader).setMark, options: []optionKind{
		{"--set-xmark", "", 1},
		{"--set-mark", "", 1},
		{"--and-mark", "", 1},
		{"--or-mark", "", 1},
		{"--xor-mark", "", 1},
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
	{name: "CT", target: (*moduleReader).conntrackTarget, options: []optionKind{
		{"--zone", "", 1},
		{"--zone-orig", "", 1},
		{"--zone-reply", "", 1},
		{"--notrack", "", 0},
		{"--helper", "", 1},
		{"--timeout", "", 1},
		{"--ctevents", "", 1},
		{"--expevents", "", 1},
	}},
	{name: "NOTRACK", target: notracks},
	{name: "REJECT", target: (*moduleReader).reject, options: []optionKind{
		{"--reject-with", "", 1},
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

func accepts(*moduleReader) rules.Action  { return rules.Accept }
func drops(*moduleReader) rules.Action    { return rules.Drop }
func returns(*moduleReader) rules.Action  { return rules.Return }
func notracks(*moduleReader) rules.Action { return rules.Notrack{} }
