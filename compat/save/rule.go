package save

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A ruleReader reads the words of one rule.
type ruleReader struct {
	*parser
	chain *chain       // the chain of the rule
	words []word       // the words that are not read yet
	err   *SyntaxError // the first error

	header  header
	modules []*module // in the order of the rule
	target  *module
	comment []string
	hits    rules.Hits
}

// readRule parses a rule of the chain. words are the words after the chain's name. A rule with a
// list of addresses results in several rules. A rule for the other family results in no rule.
// merged reports whether one rule represents several combinations of addresses. hits is the counter
// before the command, or nil.
func (p *parser) readRule(
	c *chain, words []word, hits *rules.Hits,
) (parsed []rules.Rule, merged bool, _ *SyntaxError) {
	if len(words) > maxRuleWords {
		return nil, false, p.errorAt(words[maxRuleWords], "at most %d words in a rule", maxRuleWords)
	}
	r := ruleReader{parser: p, chain: c, words: words}
	if hits != nil {
		r.hits, r.header.given = *hits, givenCounters
	}
	for len(r.words) > 0 && r.err == nil && !r.header.otherFamily {
		r.readOption()
	}
	if r.header.otherFamily && r.err == nil {
		return nil, false, nil
	}
	if r.err == nil {
		r.err = r.header.errAfterOptions
	}
	matches, actions := r.conditions()
	// The kernel counts the matching packets before it runs the target.
	actions = append(actions, rules.Count{})
	if a := r.action(); a != nil {
		actions = append(actions, a)
	}
	if r.err != nil {
		return nil, false, r.err
	}
	comment := strings.Join(r.comment, " ")
	combinations, merged := r.expandHeader(len(matches))
	for _, headerMatches := range combinations {
		rule := rules.Rule{
			Matches: append(headerMatches, matches...), Actions: actions, Comment: comment,
			Line: rules.Line(p.line.number), Hits: r.hits,
		}
		rules.SortMatches(rule.Matches)
		parsed = append(parsed, rule)
	}
	return parsed, merged, r.err
}

// maxRuleWords is the maximum number of words of a rule. iptables-restore accepts 255 words, but
// iptables-save may print more words for a rule that the command iptables has added.
const maxRuleWords = 1024

// conditions returns the conditions of the match modules: as matches of the rule or, where the
// order of evaluation matters, as actions. The kernel evaluates the matches in order, and ends the
// rule at the first match that fails. A match with a possible side effect therefore becomes an
// action, and the matches after it become [rules.Require] actions.
func (r *ruleReader) conditions() (matches []rules.Match, actions []rules.Action) {
	for _, m := range r.modules {
		if m == r.target {
			continue
		}
		for _, match := range r.moduleMatches(m) {
			u, isUnknown := match.(rules.Unknown)
			switch {
			case isUnknown && !u.Effect.IsCondition():
				actions = append(actions, u)
			case len(actions) > 0:
				actions = append(actions, rules.Require{Match: match})
			default:
				matches = append(matches, match)
			}
		}
	}
	return matches, actions
}

// failAfterOptions is like fail, for an error that iptables finds after it has read the options.
func (r *ruleReader) failAfterOptions(w word, format string, args ...any) {
	if r.header.errAfterOptions == nil {
		r.header.errAfterOptions = r.errorAt(w, format, args...)
	}
}

// fail records an error at the word, unless an error is already recorded.
func (r *ruleReader) fail(w word, format string, args ...any) {
	if r.err == nil {
		r.err = r.errorAt(w, format, args...)
	}
}

// next returns and removes the next word. At the end of the line it records an error.
func (r *ruleReader) next(want string) word {
	if len(r.words) == 0 {
		if r.err == nil {
			r.err = r.errorAtEnd("%s", want)
		}
		return word{}
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// value returns and removes the value of an option. If the option has the obsolete form of
// negation, a ! before the value, value sets *not.
func (r *ruleReader) value(want string, not *bool) word {
	if len(r.words) > 0 && r.words[0].is("!") && !*not {
		*not = true
		r.next(want)
	}
	return r.next(want)
}

// readOption parses an option of the header or of a module.
func (r *ruleReader) readOption() {
	var last *module
	if n := len(r.modules); n > 0 {
		last = r.modules[n-1]
	}
	afterUnknown := last != nil && last.hasUnknownOptions()
	if !afterUnknown {
		r.splitOption()
	}
	words := r.words[:1]
	if words[0].is("!") {
		if len(r.words) == 1 {
			r.fail(words[0], "an option after it")
			return
		}
		words = r.words[:2]
	}
	flag := words[len(words)-1]
	if !afterUnknown {
		if m, o := exactOption(r.modules, flag); o != nil {
			r.readKnownOption(m, o, words)
			return
		}
	}
	readHeaderOption := headerOption(flag.raw)
	switch {
	case readHeaderOption != nil:
		r.words = r.words[len(words):]
		readHeaderOption(r, flag, len(words) > 1)
	case afterUnknown:
		r.readUnknownWords(last, words)
	case last != nil && !last.allListed && !r.isProtocolOption(flag):
		if o := r.abbreviatedOption(last, flag); o != nil {
			r.readKnownOption(last, o, words)
			return
		}
		r.readUnknownWords(last, words)
	case !flag.isOption():
		r.fail(flag, "an option")
	default:
		r.readModuleOption(words)
	}
}

// splitOption splits the next word if it has the form "--dport=80". A ! may precede it.
func (r *ruleReader) splitOption() {
	i := 0
	if r.words[0].is("!") && len(r.words) > 1 {
		i = 1
	}
	w := r.words[i]
	raw, _, hasValue := strings.Cut(w.raw, "=")
	if !hasValue || !strings.HasPrefix(raw, "--") {
		return
	}
	n := len(raw) + 1
	split := []word{
		{raw, raw, w.column}, {strings.TrimPrefix(w.text, raw+"="), w.raw[n:], w.column + n},
	}
	r.words = slices.Concat(r.words[:i], split, r.words[i+1:])
}

// readModuleOption parses an option of a match or target that the rule names, or of the match that
// the rule's protocol implies.
func (r *ruleReader) readModuleOption(words []word) {
	flag := words[len(words)-1]
	if m, o := r.findOption(r.modules, flag); o != nil {
		r.readKnownOption(m, o, words)
		return
	}
	m := r.protocolModule()
	if r.err != nil {
		return
	}
	if m == nil {
		r.fail(flag, "an option of iptables, or of a match or target that the rule names")
		return
	}
	m.flag = flag
	switch _, o := r.findOption([]*module{m}, flag); {
	case o != nil:
		r.modules = append(r.modules, m)
		r.readKnownOption(m, o, words)
	case !m.allListed:
		r.readUnknownWords(m, words)
		r.modules = append(r.modules, m)
	default:
		r.fail(flag, "an option of iptables, or of a match or target that the rule names")
	}
}

// readUnknownWords reads words after a module that may have further options. The words are not the
// complete name of a known option. They may be an unknown option of the module, or an abbreviation
// of any other option of the rule. The module then becomes unknown, with the effect
// [rules.AnyEffect]. This effect includes neither a jump to a chain of the text nor the negation of
// a condition. Therefore a word that may name a target or negate an option is an error.
func (r *ruleReader) readUnknownWords(m *module, words []word) {
	for i, w := range words {
		name, _, _ := strings.Cut(w.text, "=")
		isLong := strings.HasPrefix(name, "--")
		switch {
		case i == 0 && w.is("!"):
		case w.text == "!":
			r.fail(w, "a single ! without quotes before an option")
		case isLong && len(name) > 2 &&
			(strings.HasPrefix("--jump", name) || strings.HasPrefix("--goto", name)),
			!isLong && strings.HasPrefix(name, "-") && strings.ContainsAny(name, "gj"):
			r.fail(w, "-j, -g, --jump or --goto as a word of its own, without quotes, or an option "+
				"that is no abbreviation of these")
		}
	}
	m.words = append(m.words, words...)
	m.hasUnknownWords = true
	r.words = r.words[len(words):]
}

// abbreviatedOption returns the only option of which the word is an abbreviation, if this is an
// option of the module. Otherwise it returns nil.
func (r *ruleReader) abbreviatedOption(m *module, flag word) *optionKind {
	modules := r.modules
	if implied := r.protocolModule(); implied != nil {
		modules = append(slices.Clip(modules), implied)
	}
	owner, o, count := optionsBeginning(modules, flag.raw)
	if count != 1 || owner != m || beginsHeaderOption(flag.raw) ||
		slices.ContainsFunc(r.modules, (*module).hasUnknownOptions) {
		return nil
	}
	return o
}

// exactOption returns the option with exactly this name, and its module. If several modules have
// the option, exactOption returns the last of these modules.
func exactOption(modules []*module, flag word) (*module, *optionKind) {
	if !flag.isOption() {
		return nil, nil
	}
	for _, m := range slices.Backward(modules) {
		if o := m.optionSpelled(flag.raw); o != nil {
			return m, o
		}
	}
	return nil, nil
}

// isProtocolOption reports whether flag is an option of the match that the rule's protocol implies.
func (r *ruleReader) isProtocolOption(flag word) bool {
	m := r.protocolModule()
	return m != nil && flag.isOption() && m.optionSpelled(flag.raw) != nil
}

// findOption is like exactOption, but like getopt_long it also accepts an unambiguous prefix of a
// name. It returns nil if no module has the option.
func (r *ruleReader) findOption(modules []*module, flag word) (owner *module, found *optionKind) {
	if m, o := exactOption(modules, flag); o != nil {
		return m, o
	}
	owner, found, count := optionsBeginning(modules, flag.raw)
	switch {
	case count > 1 || count == 1 && beginsHeaderOption(flag.raw):
		r.fail(flag, "an unambiguous abbreviation of an option")
		return nil, nil
	case count == 1 && slices.ContainsFunc(r.modules, (*module).hasUnknownOptions):
		r.fail(flag, "the complete name of an option, because the rule has a match or target whose "+
			"options are unknown")
		return nil, nil
	}
	return owner, found
}

// optionsBeginning returns an option of the modules that begins with the text, its module, and the
// number of such options.
func optionsBeginning(modules []*module, text string) (owner *module, found *optionKind, count int) {
	if !strings.HasPrefix(text, "--") {
		return nil, nil, 0
	}
	for _, m := range modules {
		for i := range m.optionKinds {
			if o := &m.optionKinds[i]; o.hasPrefix(text) {
				owner, found = m, o
				count++
			}
		}
	}
	return owner, found, count
}

// readKnownOption parses an option of the module with its values. words are the option and, if the
// option is negated, the ! before it.
func (r *ruleReader) readKnownOption(m *module, kind *optionKind, words []word) {
	o := option{name: kind.name, flag: words[len(words)-1], not: len(words) > 1}
	same := func(other option) bool { return other.name == o.name }
	if m.allListed && slices.ContainsFunc(m.options, same) {
		r.fail(o.flag, "this option only once")
		return
	}
	before := r.words
	r.words = r.words[len(words):]
	if kind.values > 0 {
		o.values[0] = r.value("a value after it", &o.not)
	}
	if kind.values > 1 {
		o.values[1] = r.next("a second value after it")
	}
	m.words = append(m.words, before[:len(before)-len(r.words)]...)
	m.options = append(m.options, o)
}

// protocolModule returns the match that the rule's protocol implies. It returns nil if the rule
// does not match exactly one protocol, or already has an implied match. If the package does not
// know the implied match, the extension of the result is unknownExtension.
func (r *ruleReader) protocolModule() *module {
	protocol, isSet := r.header.onlyProtocol()
	if !isSet || slices.ContainsFunc(r.modules, func(m *module) bool { return m.implied }) {
		return nil
	}
	name := protocolMatch(protocol)
	return &module{extension: matchNamed(name), kernelName: name, implied: true}
}
