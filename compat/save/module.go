package save

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A module is a match or target of a rule, with its options.
type module struct {
	*extension
	kernelName string // the kernel's name of a match; also set for unknownExtension
	// flag is the word with the name or, for a match that the protocol implies, the first option of
	// the match.
	flag    word
	words   []word // all words of the match or target
	options []option
	implied bool // whether the protocol implies the match, and no -m names it
	// hasUnknownWords is set if words contains words whose meaning is unknown.
	hasUnknownWords bool
}

// hasUnknownOptions reports whether the match or target may have options, and the package knows
// none of these options.
func (m *module) hasUnknownOptions() bool { return !m.allListed && m.extension.options == "" }

// An option is an option as given in a rule. The accepted options are [optionKind] values.
type option struct {
	name   string // the first spelling of the option
	flag   word   // the word with the name, as given
	not    bool
	values [2]word // as many as the option has
}

// A moduleReader translates a match or target with its options to the model. match_list.go and
// target_list.go list its methods match*, target* and *Text, each with its [extension].
type moduleReader struct {
	*ruleReader
	*module
	// isUnknown is set if the model does not represent the match or target with its options. The
	// following fields are used only then.
	isUnknown bool
	effect    rules.Effect // the possible effect
	state     string       // the name of the state that the match or target reads or changes
	text      string       // the text of the match or target; if empty, the words of the rule
}

// readText records a match or target that the model does not represent, and its text.
func (r *moduleReader) readText() {
	r.isUnknown = true
	if r.extension.text == nil {
		return
	}
	if text, ok := r.extension.text(r); ok {
		r.text = text
	}
}

// option returns the option with the name, or nil if it was not given.
func (r *moduleReader) option(name string) *option {
	for i := range r.options {
		if r.options[i].name == name {
			return &r.options[i]
		}
	}
	return nil
}

// requiredOption returns the option with the name. If it was not given, requiredOption reports an
// error and returns nil.
func (r *moduleReader) requiredOption(name string) *option {
	o := r.option(name)
	if o == nil {
		r.fail(r.flag, "%s after it", name)
	}
	return o
}

// exactlyOne returns the given option that has one of the names. It reports an error unless exactly
// one such option was given.
func (r *moduleReader) exactlyOne(names ...string) *option {
	var found *option
	for _, name := range names {
		if o := r.option(name); o != nil && found == nil {
			found = o
		} else if o != nil {
			r.fail(o.flag, "no second option beside %s", found.name)
		}
	}
	if found == nil {
		r.fail(r.flag, "one of %s after it", strings.Join(names, ", "))
	}
	return found
}

// optionValue returns the value of an option, or the default value if the option was not given.
func (r *moduleReader) optionValue(name, defaultValue string) string {
	if o := r.option(name); o != nil {
		return o.values[0].text
	}
	return defaultValue
}

// numberOption returns the value of an option as a number. It returns false if the option was not
// given, or if its value is not a number that fits into the given number of bits.
func (r *moduleReader) numberOption(name string, bits int) (n uint64, ok bool) {
	return number(r.optionValue(name, ""), bits)
}

// isNegated reports whether the match has exactly one option, and this option is negated.
func (r *moduleReader) isNegated() bool { return len(r.options) == 1 && r.options[0].not }

// rejectNegations reports an error if an option is negated.
func (r *moduleReader) rejectNegations() {
	if i := slices.IndexFunc(r.options, func(o option) bool { return o.not }); i >= 0 {
		r.rejectNegation(r.options[i].flag, true)
	}
}

// requireProtocol reports an error unless the only protocol that the rule matches is one of the
// given protocols.
func (r *moduleReader) requireProtocol(protocols ...rules.Protocol) {
	if p, _ := r.header.onlyProtocol(); slices.Contains(protocols, p) {
		return
	}
	names := make([]string, len(protocols))
	for i, protocol := range protocols {
		names[i] = "-p " + protocol.String()
	}
	r.fail(r.flag, "%s beside it", strings.Join(names, " or "))
}

// unknownText returns the text of an unknown match or target. If complete is true, the decoders of
// packages nft and compat return the same text for the same match or target. Otherwise the text
// consists of the words of the rule, for example because an option is unknown.
func (r *moduleReader) unknownText() (text string, complete bool) {
	if r.text == "" || r.hasUnknownWords || r.repeatsOption() {
		return rawText(r.module.words), false
	}
	return r.text, true
}

// anyEffect returns an unknown match or target that may have any effect. It represents a match or
// target with words of unknown meaning.
func (r *moduleReader) anyEffect() rules.Unknown {
	return rules.Unknown{Text: rawText(r.module.words)}
}

// repeatsOption reports whether an option was given more than once. readKnownOption rejects this if
// all options of the extension are listed.
func (r *moduleReader) repeatsOption() bool {
	for i, o := range r.options {
		if r.option(o.name) != &r.options[i] {
			return true
		}
	}
	return false
}
