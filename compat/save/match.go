package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// readModule parses "-m NAME".
func (r *ruleReader) readModule(flag word, not bool) {
	r.rejectNegation(flag, not)
	name := r.next("the name of a match")
	if !isName(name.text) {
		r.fail(name, "the name of a match")
	}
	called := matchName(name.text)
	words := append(make([]word, 0, 6), flag, name)
	m := &module{kind: matchNamed(called), called: called, flag: name, words: words}
	r.modules = append(r.modules, m)
}

// matchName returns the kernel's name of a match.
func matchName(name string) string {
	switch name {
	case "icmpv6", "ipv6-icmp":
		return "icmp6"
	}
	return name
}

// matchNamed returns the kind of the match with a name.
func matchNamed(name string) *kind {
	if k := kindOf(kinds, name); k != nil {
		return k
	}
	if k := openKindOf(openMatches[:], name); k != nil {
		if k.match == nil {
			k.match = openMatch.match
		}
		return k
	}
	return &openMatch
}

// protocolMatch returns the name of the match for a protocol.
func protocolMatch(p rules.Protocol) string {
	switch {
	case p == mobility:
		return "mh"
	case int(p) < len(protocolNames):
		return matchName(protocolNames[p])
	}
	return ""
}

// matchesOf returns the matches of a module; all of them are unknown if one is.
func (r *ruleReader) matchesOf(m *module) []rules.Match {
	mr := moduleReader{ruleReader: r, module: m, effect: xt.MatchEffect(m.called)}
	found := m.match(&mr)
	if mr.unknown {
		text, complete := mr.unknownText()
		if mr.effect == rules.ReadsVarying && !complete {
			mr.effect = rules.ReadsHistory // it may match all packets or none
		}
		return []rules.Match{rules.Unknown{
			Text: text, Effect: mr.effect, State: mr.state,
			Ignores: xt.MatchIgnores(m.called),
		}}
	}
	return found
}

// unknownText returns the text of an unknown match, and whether it is one that identifies the match
// in the kernel too. Otherwise it consists of the words, for example if one of them is not a known
// option.
func (r *moduleReader) unknownText() (text string, complete bool) {
	words := 2 // -m and the name
	for _, o := range r.options {
		words += 1 + r.kind.spelled(o.name).values
		if o.not {
			words++
		}
	}
	if r.text == "" || words != len(r.module.words) {
		return rawText(r.module.words), false
	}
	return r.text, true
}

// needs reports an error unless the rule matches a protocol of the list.
func (r *moduleReader) needs(list ...rules.Protocol) {
	p, _ := r.header.onlyProtocol()
	for _, protocol := range list {
		if p == protocol {
			return
		}
	}
	names := make([]string, len(list))
	for i, protocol := range list {
		names[i] = "-p " + protocol.String()
	}
	r.fail(r.flag, "%s beside it", strings.Join(names, " or "))
}

// required returns a required option of the module.
func (r *moduleReader) required(name string) *option {
	o := r.option(name)
	if o == nil {
		r.fail(r.flag, "%s after it", name)
	}
	return o
}

// comments parses the comment of the rule.
func (r *moduleReader) comments() []rules.Match {
	if o := r.required("--comment"); o != nil {
		r.rejectNegation(o.flag, o.not)
		r.comment = append(r.comment, o.values[0].text)
	}
	return nil
}
