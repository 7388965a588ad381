package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An extension is a match or target of xtables with the options that it accepts. The model does not
// represent it if match and target are nil.
type extension struct {
	name string
	// options lists the options. An option with N values ends with N equals signs, and | separates
	// two spellings of an option, for example "--tcp-flags== --dport|--destination-port=".
	options string
	// allListed is set if options lists all options that the match or target accepts. Otherwise,
	// each word after the name that is no option of the rule's header may be an option. The list
	// then still shows which words are values, because a value may look like an option.
	allListed   bool
	optionKinds []optionKind // parsed from options
	// match translates a match with its given options.
	match func(*moduleReader) []rules.Match
	// target translates a target with its given options. The action is nil if the target has no
	// effect on packets.
	target func(*moduleReader) rules.Action
	// text returns the text of a match or target that the model does not represent. Package xt
	// returns the same text for the same match or target in the kernel. text returns false if this
	// text is unknown, for example because a value is invalid.
	text func(*moduleReader) (text string, ok bool)
}

// unknownExtension is the extension for a match or target whose name is unknown.
var unknownExtension extension

// indexed parses the options of the extensions, and returns the extensions by name.
func indexed(list []extension) map[string]*extension {
	byName := make(map[string]*extension, len(list))
	for i := range list {
		e := &list[i]
		for field := range strings.FieldsSeq(e.options) {
			spellings := strings.TrimRight(field, "=")
			name, other, _ := strings.Cut(spellings, "|")
			e.optionKinds = append(e.optionKinds,
				optionKind{name: name, other: other, values: len(field) - len(spellings)})
		}
		byName[e.name] = e
	}
	return byName
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
	for i := range e.optionKinds {
		if o := &e.optionKinds[i]; o.name == name || o.other == name {
			return o
		}
	}
	return nil
}
