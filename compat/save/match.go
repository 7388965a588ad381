package save

import (
	"strings"
	"sync"

	"github.com/sluice-mesh/sluice/rules"
)

// A kind is a match or a target with its options.
type kind struct {
	options func() map[string]spelling // nil for none
	// open tells that its options are not known here: every word is one until an option of the rule itself.
	open bool
	// match returns what the options of a match ask for; nil for a target.
	match func(*moduleReader) []rules.Match
	// target returns what a target does, nil if nothing; nil for a match.
	target func(*moduleReader) rules.Action
}

// A spelling is one way to write an option.
type spelling struct {
	name   string
	values int
}

// options lists options as "--name --other-spelling VALUE", with a word in capitals for each value. They are read when they are first
// needed: most programs never do.
func options(texts ...string) func() map[string]spelling {
	return sync.OnceValue(func() map[string]spelling {
		list := map[string]spelling{}
		for _, text := range texts {
			var names []string
			values := 0
			for w := range strings.FieldsSeq(text) {
				if strings.HasPrefix(w, "-") {
					names = append(names, w)
				} else {
					values++
				}
			}
			for _, name := range names {
				list[name] = spelling{names[0], values}
			}
		}
		return list
	})
}

// spellings are all those of the kind's options.
func (k *kind) spellings() map[string]spelling {
	if k.options == nil {
		return nil
	}
	return k.options()
}

const (
	sportOption = "--sport --source-port PORTS"
	dportOption = "--dport --destination-port PORTS"
)

// kinds are the matches whose options are known here, by their names.
var kinds = map[string]*kind{
	"tcp": {match: (*moduleReader).tcp, options: options(
		sportOption, dportOption, "--tcp-flags MASK SET", "--syn", "--tcp-option N")},
	"udp": {match: (*moduleReader).udp, options: options(sportOption, dportOption)},
	"multiport": {match: (*moduleReader).multiport, options: options(
		"--sports --source-ports PORTS", "--dports --destination-ports PORTS", "--ports --port PORTS")},
	"mark":     {match: (*moduleReader).matchMark, options: options("--mark MARK")},
	"connmark": {match: (*moduleReader).matchConnmark, options: options("--mark MARK")},
	"owner": {match: (*moduleReader).owner, options: options(
		"--uid-owner IDS", "--gid-owner IDS", "--socket-exists", "--suppl-groups")},
	"conntrack": {match: (*moduleReader).state, options: options("--ctstate STATES", "--ctproto P", "--ctorigsrc A", "--ctorigdst A",
		"--ctreplsrc A", "--ctrepldst A", "--ctorigsrcport P", "--ctorigdstport P", "--ctreplsrcport P", "--ctrepldstport P",
		"--ctstatus S", "--ctexpire T", "--ctdir D")},
	"state":   {match: (*moduleReader).state, options: options("--state STATES")},
	"iprange": {match: (*moduleReader).iprange, options: options("--src-range A", "--dst-range A")},
	"comment": {match: (*moduleReader).comments, options: options("--comment TEXT")},
}

// openMatch is a match whose options are not known.
var openMatch = &kind{open: true, match: func(r *moduleReader) []rules.Match {
	r.unknown = true
	return nil
}}

// readModule reads "-m NAME".
func (r *ruleReader) readModule(at word, not bool) {
	r.never(at, not)
	name := r.next("the name of a match")
	if !isName(name.text) {
		r.fail(name, "the name of a match")
	}
	k, known := kinds[name.text]
	if !known {
		k = openMatch
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
