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
	// one for each resulting rule; nil, also as an element, for any address
	source, destination []rules.Match
	list                word // the last of these lists
	protocol, fragment  rules.Match
	otherFamily         bool // the rule is for the other family
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

// headerOptions are the options of all rules, with their spellings.
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
	{[]string{"-f", "--fragment"}, (*ruleReader).readFragment},
	{[]string{"-m", "--match"}, (*ruleReader).readModule},
	{[]string{"-j", "--jump", "-g", "--goto"}, (*ruleReader).readTarget},
	{[]string{"-c", "--set-counters"}, (*ruleReader).readCounters},
	{[]string{"-4", "--ipv4", "-6", "--ipv6"}, (*ruleReader).readFamily},
}

// headerOption returns the parser of an option of all rules, or nil.
func headerOption(name string) func(r *ruleReader, flag word, not bool) {
	for i := range headerOptions {
		if slices.Contains(headerOptions[i].names, name) {
			return headerOptions[i].read
		}
	}
	return nil
}

// beginsHeaderOption reports whether the text is a prefix of an option of all rules.
func beginsHeaderOption(text string) bool {
	for i := range headerOptions {
		if slices.ContainsFunc(headerOptions[i].names, func(name string) bool {
			return strings.HasPrefix(name, text)
		}) {
			return true
		}
	}
	return false
}

// matches returns the header matches of each resulting rule in the kernel's order, the interfaces
// first.
func (h *header) matches() [][]rules.Match {
	var list [][]rules.Match
	for _, s := range orAny(h.source) {
		for _, d := range orAny(h.destination) {
			var of []rules.Match
			for _, m := range [...]rules.Match{h.in, h.out, s, d, h.protocol, h.fragment} {
				if m != nil {
					of = append(of, m)
				}
			}
			list = append(list, of)
		}
	}
	return list
}

func orAny(list []rules.Match) []rules.Match {
	if len(list) == 0 {
		return []rules.Match{nil}
	}
	return list
}

// onlyProtocol returns the protocol that the rule matches.
func (h *header) onlyProtocol() (rules.Protocol, bool) {
	m, ok := h.protocol.(rules.MatchProtocol)
	if !ok || m.Not {
		return 0, false
	}
	return m.Protocols[0], true
}

// recordOnce records an option, which must not be repeated.
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

// unread returns an unsupported match for an option with its value. The header of a rule only reads
// the packet.
func unread(flag word, not bool, values ...word) rules.Match {
	words := append([]word{flag}, values...)
	if not {
		words = append([]word{{raw: "!"}}, words...)
	}
	return rules.Unknown{Text: rawText(words), Effect: rules.Reads, Ignores: headerIgnores}
}

func (r *ruleReader) readInterface(flag word, not bool) {
	out := flag.raw == "-o" || flag.raw == "--out-interface"
	place, bit := &r.header.in, uint(givenIn)
	if out {
		place, bit = &r.header.out, givenOut
	}
	r.recordOnce(flag, bit)
	const want = "an interface name of 1 to 15 bytes without blanks or slashes; a trailing + matches a prefix"
	w := r.value(want, &not)
	name, prefix := strings.CutSuffix(w.text, "+")
	switch {
	case w.text == "" || len(w.text) > maxInterface || strings.ContainsAny(w.text, "/ \t"):
		r.fail(w, "%s", want)
	case name == "" && !not:
		// All interfaces match.
	default:
		*place = rules.MatchInterface{
			Out: out, Not: not, Names: []rules.InterfaceName{{Name: name, Prefix: prefix}},
		}
	}
}

// maxInterface is IFNAMSIZ of linux/if.h without the terminating zero.
const maxInterface = 15

func (r *ruleReader) readProtocol(flag word, not bool) {
	r.recordOnce(flag, givenProtocol)
	const want = "a protocol: a name or a number from 0 to 255"
	w := r.value(want, &not)
	p, known := protocolNamed(strings.ToLower(w.text))
	if !known {
		if isName(w.text) {
			r.header.protocol = unread(flag, not, w)
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

// readFragment parses an unsupported condition, for which IPv6 has no option.
func (r *ruleReader) readFragment(flag word, not bool) {
	r.recordOnce(flag, givenFragment)
	if r.family == rules.IPv6 {
		r.fail(flag, "an option of ip6tables")
	}
	r.header.fragment = unread(flag, not)
}

// readCounters parses the counter of a rule.
func (r *ruleReader) readCounters(flag word, not bool) {
	r.rejectNegation(flag, not)
	r.recordOnce(flag, givenCounters)
	for _, to := range []*uint64{&r.hits.Packets, &r.hits.Bytes} {
		const want = "the number of packets and the number of bytes"
		w := r.next(want)
		n, ok := number(w.text, 64)
		if !ok {
			r.fail(w, "%s", want)
		}
		*to = n
	}
}

// readFamily parses the option that restricts a rule to a family in a text for both families.
func (r *ruleReader) readFamily(flag word, not bool) {
	r.rejectNegation(flag, not)
	of := rules.IPv4
	if strings.HasSuffix(flag.raw, "6") {
		of = rules.IPv6
	}
	r.header.otherFamily = r.header.otherFamily || of != r.family
}
