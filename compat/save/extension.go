package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An extension is a match or target of xtables with the options that it accepts.
type extension struct {
	name    string
	options []optionKind
	// open reports whether the match or target may have options that are not in the field options.
	// Each word after the name that is no option of the rule's header may be such an option. The
	// field options still shows which words are values, because a value may look like an option.
	open bool
	// match translates a match with its given options. It is nil for a target.
	match func(*moduleReader) []rules.Match
	// target translates a target with its given options. The action is nil if the target has no
	// effect on packets. The function is nil for a match.
	target func(*moduleReader) rules.Action
}

// An optionKind is an option that a match or target accepts. An option in a rule is an [option].
type optionKind struct {
	name   string
	other  string // another spelling of the name, or empty
	values int    // the number of values
}

// hasPrefix reports whether the text is a prefix of a spelling of the option.
func (o *optionKind) hasPrefix(text string) bool {
	return strings.HasPrefix(o.name, text) || strings.HasPrefix(o.other, text)
}

// optionSpelled returns the option with the spelling, or nil.
func (e *extension) optionSpelled(name string) *optionKind {
	for i := range e.options {
		if o := &e.options[i]; o.name == name || o.other == name {
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

// An openExtension is an extension that may have further options; see [extension.open]. Its options
// are in the format of parseOptionList. If match and target are nil, the model does not represent
// the match or target.
type openExtension struct {
	name, options string
	match         func(*moduleReader) []rules.Match
	target        func(*moduleReader) rules.Action
}

// findOpenExtension returns an extension for the entry with the name, or nil if there is no entry.
func findOpenExtension(list []openExtension, name string) *extension {
	for _, o := range list {
		if o.name != name {
			continue
		}
		return &extension{
			name: name, options: parseOptionList(o.options), open: true, match: o.match,
			target: o.target,
		}
	}
	return nil
}

// parseOptionList parses a list of options. N equals signs follow an option with N values.
func parseOptionList(list string) []optionKind {
	var options []optionKind
	for field := range strings.FieldsSeq(list) {
		name := strings.TrimRight(field, "=")
		options = append(options, optionKind{name: name, values: len(field) - len(name)})
	}
	return options
}
