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
	called  string // the name of a match, also of one whose kind is not known
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

// readRule reads the rest of a rule after its chain. Several addresses make several rules, and a
// rule for the other family makes none; merged reports that the one rule stands for several. Hits
// is the counter before the command, nil if there is none.
func (p *parser) readRule(
	words []word, hits *rules.Hits,
) (list []rules.Rule, merged bool, _ *SyntaxError) {
	if len(words) > maxRuleWords {
		return nil, false, p.at(words[maxRuleWords], "at most %d words in a rule", maxRuleWords)
	}
	r := ruleReader{parser: p, words: words}
	if hits != nil {
		r.hits, r.header.given = *hits, givenCounters
	}
	for len(r.words) > 0 && r.err == nil {
		r.readOption()
	}
	matches, actions := r.conditions()
	// The kernel counts what matches, before the target.
	actions = append(actions, rules.Count{})
	if a := r.action(); a != nil {
		actions = append(actions, a)
	}
	if r.err != nil {
		return nil, false, r.err
	}
	if r.header.other {
		return nil, false, nil
	}
	comment := strings.Join(r.comment, " ")
	headers, merged := r.headers(len(matches))
	for _, header := range headers {
		rule := rules.Rule{
			Matches: append(header, matches...), Actions: actions, Comment: comment,
			Line: rules.Line(p.line.number), Hits: r.hits,
		}
		rules.SortMatches(rule.Matches)
		list = append(list, rule)
	}
	return list, merged, r.err
}

// maxRuleWords bounds the words of a rule. iptables-restore takes 255, and iptables-save prints
// more only of rules that the iptables command was given.
const maxRuleWords = 1024

// conditions returns what the matches of the rule ask for. The kernel evaluates them in the order
// in which the rule names them, and ends the rule at the first that is not fulfilled. So a match
// that may do something to the packet is an action, and the matches after it are required after
// it.
func (r *ruleReader) conditions() (matches []rules.Match, actions []rules.Action) {
	for _, m := range r.modules {
		if m.match == nil {
			continue
		}
		for _, one := range r.matchesOf(m) {
			u, isUnknown := one.(rules.Unknown)
			switch {
			case isUnknown && !u.Effect.IsCondition():
				actions = append(actions, u)
			case len(actions) > 0:
				actions = append(actions, rules.Require{Match: one})
			default:
				matches = append(matches, one)
			}
		}
	}
	return matches, actions
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
	unknown := last != nil && last.open && len(last.kind.options) == 0
	if !unknown {
		r.splitOption()
	}
	given := r.words[:1]
	if given[0].is("!") {
		if len(r.words) == 1 {
			r.fail(given[0], "an option after it")
			return
		}
		given = r.words[:2]
	}
	at := given[len(given)-1]
	if !unknown {
		if m, o := exactOption(r.modules, at); o != nil {
			r.optionOf(m, o, given)
			return
		}
	}
	header := headerOption(at.raw)
	switch {
	case header != nil:
		r.words = r.words[len(given):]
		header(r, at, len(given) > 1)
	case unknown || last != nil && last.open && !r.isOfProtocol(at):
		last.words = append(last.words, given...)
		r.words = r.words[len(given):]
	case !at.isOption():
		r.fail(at, "an option")
	default:
		r.moduleOption(given)
	}
}

// splitOption parts an option "--dport=80", also after a "!".
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
	parts := []word{
		{raw, raw, w.column}, {strings.TrimPrefix(w.text, raw+"="), w.raw[n:], w.column + n},
	}
	r.words = slices.Concat(r.words[:i], parts, r.words[i+1:])
}

// moduleOption takes an option of a module that the rule names, or of the one that its protocol
// stands for.
func (r *ruleReader) moduleOption(given []word) {
	at := given[len(given)-1]
	if m, o := r.findOption(r.modules, at); o != nil {
		r.optionOf(m, o, given)
		return
	}
	m := r.protocolModule()
	if r.err != nil {
		return
	}
	if m == nil {
		r.fail(at, "an option of iptables, or of a match or target that the rule names")
		return
	}
	m.at = at
	switch _, o := r.findOption([]*module{m}, at); {
	case o != nil:
		r.modules = append(r.modules, m)
		r.optionOf(m, o, given)
	case m.open:
		m.words = append(m.words, given...)
		r.words = r.words[len(given):]
		r.modules = append(r.modules, m)
	default:
		r.fail(at, "an option of iptables, or of a match or target that the rule names")
	}
}

// exactOption finds an option by its whole name.
func exactOption(modules []*module, at word) (*module, *optionKind) {
	if !at.isOption() {
		return nil, nil
	}
	for _, m := range slices.Backward(modules) {
		if o := m.spelled(at.raw); o != nil {
			return m, o
		}
	}
	return nil, nil
}

// isOfProtocol reports whether the match that the rule's protocol stands for has the option.
func (r *ruleReader) isOfProtocol(at word) bool {
	m := r.protocolModule()
	return m != nil && at.isOption() && m.spelled(at.raw) != nil
}

// findOption finds an option and the module that it belongs to: the one that the rule has named
// last among those which have it. As with getopt_long the end of its name may be missing, if no
// other begins so. Both are nil if there is none.
func (r *ruleReader) findOption(modules []*module, at word) (of *module, found *optionKind) {
	if m, o := exactOption(modules, at); o != nil {
		return m, o
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
	same := func(other option) bool { return other.name == o.name }
	if !m.open && slices.ContainsFunc(m.options, same) {
		r.fail(o.at, "each option once")
		return
	}
	before := r.words
	r.words = r.words[len(given):]
	if of.values > 0 {
		o.values[0] = r.value("a value after it", &o.not)
	}
	if of.values > 1 {
		o.values[1] = r.next("a second value after it")
	}
	m.words = append(m.words, before[:len(before)-len(r.words)]...)
	m.options = append(m.options, o)
}

// protocolModule is the match that the rule's protocol stands for, nil if the rule asks for none or
// already has it.
func (r *ruleReader) protocolModule() *module {
	protocol, given := r.header.onlyProtocol()
	if !given || slices.ContainsFunc(r.modules, func(m *module) bool { return m.implied }) {
		return nil
	}
	name := protocolMatch(protocol)
	return &module{kind: matchNamed(name), called: name, implied: true}
}
