package save

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A ruleReader reads the words of one rule.
type ruleReader struct {
	*parser
	words []word       // those to read
	err   *SyntaxError // the first

	header  header
	modules []*module // in the order in which the rule names them
	target  *module
	comment []string
	hits    rules.Hits
}

// A module is a match or a target that a rule names, with the options given to it.
type module struct {
	*kind
	at      word   // its name, or the first option of one that the protocol stands for
	words   []word // all that is said of it
	options []option
	implied bool // by the protocol, not named by -m
}

// An option of a match or target.
type option struct {
	name   string // the first of its spellings
	at     word   // as given
	not    bool
	values [2]word // as many as the option has
}

// readRule reads what is behind the chain of a rule. Several addresses make several rules, and a rule for the other family makes
// none. Hits is the counter before the command, nil if there is none.
func (p *parser) readRule(words []word, hits *rules.Hits) ([]rules.Rule, *SyntaxError) {
	r := ruleReader{parser: p, words: words}
	if hits != nil {
		r.hits, r.header.given = *hits, givenCounters
	}
	for len(r.words) > 0 && r.err == nil {
		r.readOption()
	}
	var matches []rules.Match
	for _, m := range r.modules {
		if m.match != nil {
			matches = append(matches, r.matchesOf(m)...)
		}
	}
	// The kernel counts what matches, before the target.
	actions := []rules.Action{rules.Count{}}
	if a := r.action(); a != nil {
		actions = append(actions, a)
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.header.other {
		return nil, nil
	}
	var list []rules.Rule
	for _, header := range r.header.matches() {
		rule := rules.Rule{
			Matches: append(header, matches...), Actions: actions, Comment: strings.Join(r.comment, " "),
			Position: uint64(p.line.number), Hits: r.hits,
		}
		rules.SortMatches(rule.Matches)
		list = append(list, rule)
	}
	return list, nil
}

// fail records the first error.
func (r *ruleReader) fail(w word, format string, args ...any) {
	if r.err == nil {
		r.err = r.at(w, format, args...)
	}
}

// next takes a word; at the end of the line something is missing.
func (r *ruleReader) next(want string) word {
	if len(r.words) == 0 {
		if r.err == nil {
			r.err = r.atEnd("%s", want)
		}
		return word{}
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// value takes the value of an option. The old way to negate it is a ! before the value.
func (r *ruleReader) value(want string, not *bool) word {
	if len(r.words) > 0 && r.words[0].is("!") && !*not {
		*not = true
		r.next(want)
	}
	return r.next(want)
}

// readOption takes an option, of the rule itself or of a module.
func (r *ruleReader) readOption() {
	var last *module
	if n := len(r.modules); n > 0 {
		last = r.modules[n-1]
	}
	open := last != nil && last.open
	if !open {
		r.splitOption()
	}
	given := r.words[:1]
	if given[0].is("!") {
		if len(r.words) == 1 {
			r.fail(given[0], "an option behind it")
			return
		}
		given = r.words[:2]
	}
	at := given[len(given)-1]
	header := headerOption(at.raw)
	switch {
	case header != nil:
		r.words = r.words[len(given):]
		header(r, at, len(given) > 1)
	case open:
		last.words = append(last.words, given...)
		r.words = r.words[len(given):]
	case !at.isOption():
		r.fail(at, "an option")
	default:
		r.moduleOption(given)
	}
}

// splitOption parts an option "--dport=80", also behind a "!".
func (r *ruleReader) splitOption() {
	i := 0
	if r.words[0].is("!") && len(r.words) > 1 {
		i = 1
	}
	w := r.words[i]
	raw, _, long := strings.Cut(w.raw, "=")
	if !long || !strings.HasPrefix(raw, "--") {
		return
	}
	n := len(raw) + 1
	parts := []word{{raw, raw, w.column}, {strings.TrimPrefix(w.text, raw+"="), w.raw[n:], w.column + n}}
	r.words = slices.Concat(r.words[:i], parts, r.words[i+1:])
}

// moduleOption takes an option of a module that the rule names, or of the one that its protocol stands for.
func (r *ruleReader) moduleOption(given []word) {
	at := given[len(given)-1]
	if m, o := r.findOption(r.modules, at); o != nil {
		r.optionOf(m, o, given)
		return
	}
	m := r.protocolModule()
	switch {
	case r.err != nil:
	case m == nil:
		r.fail(at, "an option of iptables, or of a match or target that the rule names")
	case m.open:
		m.words = append(m.words, given...)
		r.words = r.words[len(given):]
		r.modules = append(r.modules, m)
	default:
		_, o := r.findOption([]*module{m}, at)
		if o == nil {
			r.fail(at, "an option of iptables, or of a match or target that the rule names")
			return
		}
		r.modules = append(r.modules, m)
		m.at = at
		r.optionOf(m, o, given)
	}
}

// findOption finds an option and the module that it belongs to: the one that the rule has named last among those which have it. As
// with getopt_long the end of its name may be missing, if no other begins so. Both are nil if there is none.
func (r *ruleReader) findOption(modules []*module, at word) (of *module, found *optionKind) {
	for _, m := range slices.Backward(modules) {
		if o := m.spelled(at.raw); o != nil {
			return m, o
		}
	}
	if !strings.HasPrefix(at.raw, "--") {
		return nil, nil
	}
	for _, m := range modules {
		for i := range m.kind.options {
			o := &m.kind.options[i]
			if !o.begins(at.raw) {
				continue
			}
			if found != nil {
				r.fail(at, "an option that begins as only one does")
				return nil, nil
			}
			of, found = m, o
		}
	}
	if found != nil && beginsHeaderOption(at.raw) {
		r.fail(at, "an option that begins as only one does")
		return nil, nil
	}
	return of, found
}

// optionOf takes an option of the module with its values.
func (r *ruleReader) optionOf(m *module, of *optionKind, given []word) {
	o := option{name: of.name, at: given[len(given)-1], not: len(given) > 1}
	if slices.ContainsFunc(m.options, func(other option) bool { return other.name == o.name }) {
		r.fail(o.at, "each option once")
		return
	}
	before := r.words
	r.words = r.words[len(given):]
	if of.values > 0 {
		o.values[0] = r.value("a value behind it", &o.not)
	}
	if of.values > 1 {
		o.values[1] = r.next("a second value behind it")
	}
	m.words = append(m.words, before[:len(before)-len(r.words)]...)
	m.options = append(m.options, o)
}

// protocolModule is the match that the rule's protocol stands for, nil if the rule asks for none or already has it.
func (r *ruleReader) protocolModule() *module {
	protocol, given := r.header.onlyProtocol()
	if !given || slices.ContainsFunc(r.modules, func(m *module) bool { return m.implied }) {
		return nil
	}
	k := &openMatch
	switch protocol {
	case rules.TCP:
		k = kindOf(kinds, "tcp")
	case rules.UDP:
		k = kindOf(kinds, "udp")
	}
	return &module{kind: k, implied: true}
}
