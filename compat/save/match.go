package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// readModule reads "-m NAME".
func (r *ruleReader) readModule(at word, not bool) {
	r.never(at, not)
	name := r.next("the name of a match")
	if !isName(name.text) {
		r.fail(name, "the name of a match")
	}
	k := kindOf(kinds, name.text)
	if k == nil {
		k = &openMatch
	}
	r.modules = append(r.modules, &module{kind: k, at: name, words: append(make([]word, 0, 6), at, name)})
}

// matchesOf returns what a match asks for; all of it is unknown if part of it is.
func (r *ruleReader) matchesOf(m *module) []rules.Match {
	mr := moduleReader{ruleReader: r, module: m}
	found := m.match(&mr)
	if mr.unknown {
		return []rules.Match{rules.Unknown{Text: rawText(m.words)}}
	}
	return found
}

// needs tells which protocol of the list the rule asks for, and refuses a rule that does not.
func (r *moduleReader) needs(list ...rules.Protocol) rules.Protocol {
	p, _ := r.header.onlyProtocol()
	for _, one := range list {
		if p == one {
			return p
		}
	}
	names := make([]string, len(list))
	for i, one := range list {
		names[i] = "-p " + one.String()
	}
	r.fail(r.at, "%s beside it", strings.Join(names, " or "))
	return 0
}

// required returns an option without which the module does nothing.
func (r *moduleReader) required(name string) *option {
	o := r.option(name)
	if o == nil {
		r.fail(r.at, "%s behind it", name)
	}
	return o
}

// comments reads the text that says what the rule is for.
func (r *moduleReader) comments() []rules.Match {
	if o := r.required("--comment"); o != nil {
		r.never(o.at, o.not)
		r.comment = append(r.comment, o.values[0].text)
	}
	return nil
}
