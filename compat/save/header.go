package save

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A header contains the matches of a rule that need no match module.
type header struct {
	given   uint // bits of the options that were given
	in, out rules.Match
	// source and destination contain a match for each address of a list. An empty list and a nil
	// match mean any address.
	source, destination []rules.Match
	lastList, negated   word // the last list of addresses, and the last negated address
	protocol, fragment  rules.Match
	otherFamily         bool // the rule is for the other family
	// errAfterOptions is the first error that iptables finds after it has read the options, for
	// example in an address. It is ignored if the rule is for the other family.
	errAfterOptions *SyntaxError
}

// Bits of header.given.
const (
	givenIn = 1 << iota
	givenOut
	givenSource
	givenDestination
	givenProtocol
	givenFragment
	givenTarget
	givenCounters
)

// headerOptions contains the options that every rule accepts, with their spellings.
var headerOptions = [...]struct {
	names []string
	read  func(r *ruleReader, flag word, not bool)
}{
	{[]string{"-i", "--in-interface", "-o", "--out-interface"}, (*ruleReader).readInterface},
	{
		[]string{"-s", "--source", "--src", "-d", "--destination", "--dst"},
		(*ruleReader).readAddress,
	},
	{[]string{"-p", "--protocol", "--proto"}, (*ruleReader).readProtocol},
	{[]string{"-f", "--fragments", "--fragment"}, (*ruleReader).readFragment},
	{[]string{"-m", "--match"}, (*ruleReader).readMatch},
	{[]string{"-j", "--jump", "-g", "--goto"}, (*ruleReader).readTarget},
	{[]string{"-c", "--set-counters"}, (*ruleReader).readCounters},
	{[]string{"-4", "--ipv4", "-6", "--ipv6"}, (*ruleReader).readFamily},
}

// headerOption returns the parser of the option with the spelling, or nil if headerOptions lacks
// it.
func headerOption(name string) func(r *ruleReader, flag word, not bool) {
	for i := range headerOptions {
		if slices.Contains(headerOptions[i].names, name) {
			return headerOptions[i].read
		}
	}
	return nil
}

// otherOptions contains the other long options of iptables and ip6tables, which a rule cannot have.
// They too can make an abbreviation ambiguous.
var otherOptions = []string{
	"--append", "--check", "--delete", "--delete-chain", "--exact", "--flush", "--help",
	"--insert", "--line-numbers", "--list", "--list-rules", "--modprobe", "--new-chain", "--numeric",
	"--policy", "--rename-chain", "--replace", "--table", "--verbose", "--version", "--wait",
	"--wait-interval", "--zero",
}

// beginsHeaderOption reports whether the text is a prefix of an option in headerOptions, or of an
// option in otherOptions.
func beginsHeaderOption(text string) bool {
	begins := func(name string) bool { return strings.HasPrefix(name, text) }
	if slices.ContainsFunc(otherOptions, begins) {
		return true
	}
	for i := range headerOptions {
		if slices.ContainsFunc(headerOptions[i].names, begins) {
			return true
		}
	}
	return false
}

// matches returns the header matches of each resulting rule, in the order in which package compat
// decodes them.
func (h *header) matches() [][]rules.Match {
	var combinations [][]rules.Match
	for _, source := range orAny(h.source) {
		for _, destination := range orAny(h.destination) {
			var combination []rules.Match
			for _, m := range [...]rules.Match{
				h.in, h.out, source, destination, h.protocol, h.fragment,
			} {
				if m != nil {
					combination = append(combination, m)
				}
			}
			combinations = append(combinations, combination)
		}
	}
	return combinations
}

// orAny returns the matches or, if there are none, a single nil match, which means any address.
func orAny(matches []rules.Match) []rules.Match {
	if len(matches) == 0 {
		return []rules.Match{nil}
	}
	return matches
}

// onlyProtocol returns the only protocol that the rule matches. It returns false if the rule
// matches several protocols or an unknown one.
func (h *header) onlyProtocol() (rules.Protocol, bool) {
	m, ok := h.protocol.(rules.MatchProtocol)
	if !ok || m.Not {
		return 0, false
	}
	return m.Protocols[0], true
}

// recordOnce records that an option was given, and reports an error if it is repeated.
func (r *ruleReader) recordOnce(flag word, bit uint) {
	if r.header.given&bit != 0 {
		r.fail(flag, "this option only once")
	}
	r.header.given |= bit
}

// rejectNegation reports an error for a ! before an option that does not support it.
func (r *ruleReader) rejectNegation(flag word, not bool) {
	if not {
		r.fail(flag, "no ! before this option")
	}
}

// headerIgnores contains the inputs on which the header of a rule does not depend.
const headerIgnores = rules.AllInputs &^ rules.HeaderInput

// unknownHeaderMatch returns the match for an option of the header that the model does not support.
// values are the values of the option. The effect of the match is known: the header of a rule only
// reads the packet.
func unknownHeaderMatch(flag word, not bool, values ...word) rules.Match {
	words := append([]word{flag}, values...)
	if not {
		words = append([]word{{raw: "!"}}, words...)
	}
	return rules.Unknown{Text: rawText(words), Effect: rules.Reads, Ignores: headerIgnores}
}

// readInterface parses the option for the input or the output interface.
func (r *ruleReader) readInterface(flag word, not bool) {
	out := flag.raw == "-o" || flag.raw == "--out-interface"
	match, bit := &r.header.in, uint(givenIn)
	if out {
		match, bit = &r.header.out, givenOut
	}
	r.recordOnce(flag, bit)
	if base := r.chain.base; base != nil && (base.Hook == rules.Output && !out ||
		base.Hook == rules.Postrouting && !out || base.Hook == rules.Prerouting && out ||
		base.Hook == rules.Input && out) {
		direction := map[bool]string{false: "input", true: "output"}[out]
		r.failAfterOptions(flag, "no %s in chain %s, whose packets have no %s interface", flag.raw,
			r.chain.name, direction)
	}
	const want = "an interface name of 1 to 15 bytes without blanks or slashes; a trailing + matches" +
		" a prefix"
	w := r.value(want, &not)
	name, prefix := strings.CutSuffix(w.text, "+")
	switch {
	case w.text == "" || len(w.text) > maxInterfaceName || strings.ContainsAny(w.text, "/ \t"):
		r.fail(w, "%s", want)
	case name == "" && !not:
		// All interfaces match.
	default:
		*match = rules.MatchInterface{
			Out: out, Not: not, Names: []rules.InterfaceName{{Name: name, Prefix: prefix}},
		}
	}
}

// maxInterfaceName is the maximum length of an interface name in bytes (IFNAMSIZ of linux/if.h
// without the terminating zero).
const maxInterfaceName = 15

// readProtocol parses the option for the protocol. A name that protocolNamed does not know becomes
// an unknown match.
func (r *ruleReader) readProtocol(flag word, not bool) {
	r.recordOnce(flag, givenProtocol)
	const want = "a protocol: a name or a number from 0 to 255"
	w := r.value(want, &not)
	p, known := protocolNamed(strings.ToLower(w.text))
	if !known {
		if isName(w.text) {
			r.header.protocol = unknownHeaderMatch(flag, not, w)
			return
		}
		n, ok := number(w.text, 8)
		if !ok {
			r.fail(w, "%s", want)
		}
		p = rules.Protocol(n)
	}
	switch {
	case p != 0:
		r.header.protocol = rules.MatchProtocol{Not: not, Protocols: []rules.Protocol{p}}
	case not:
		r.fail(w, "a protocol other than all: no packet matches ! all")
	}
}

// readFragment parses the option for fragments, which the model does not support. ip6tables has no
// such option.
func (r *ruleReader) readFragment(flag word, not bool) {
	r.recordOnce(flag, givenFragment)
	if r.family == rules.IPv6 {
		r.fail(flag, "an option of ip6tables")
	}
	r.header.fragment = unknownHeaderMatch(word{raw: "-f"}, not)
}

// readCounters parses the counter of a rule.
func (r *ruleReader) readCounters(flag word, not bool) {
	r.rejectNegation(flag, not)
	r.recordOnce(flag, givenCounters)
	for _, counter := range []*uint64{&r.hits.Packets, &r.hits.Bytes} {
		const want = "the number of packets and the number of bytes"
		w := r.next(want)
		n, ok := number(w.text, 64)
		if !ok {
			r.fail(w, "%s", want)
		}
		*counter = n
	}
}

// readFamily parses an option that restricts the rule to one family. A text for both families
// contains such options. Like iptables-restore, the package does not read the rest of a rule for
// the other family.
func (r *ruleReader) readFamily(flag word, not bool) {
	r.rejectNegation(flag, not)
	family := rules.IPv4
	if strings.HasSuffix(flag.raw, "6") {
		family = rules.IPv6
	}
	r.header.otherFamily = r.header.otherFamily || family != r.family
}
