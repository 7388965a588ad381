package save

import (
	"slices"
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
	kernelName := matchName(name.text)
	r.modules = append(r.modules, &module{
		extension: matchNamed(kernelName), kernelName: kernelName, flag: name,
		words: append(make([]word, 0, 6), flag, name),
	})
}

// matchName returns the kernel's name of a match.
func matchName(name string) string {
	switch name {
	case "icmpv6", "ipv6-icmp":
		return "icmp6"
	}
	return name
}

// matchNamed returns the extension of the match with the name, or openMatch if the name is unknown.
func matchNamed(name string) *extension {
	if k := findExtension(matchExtensions, name); k != nil {
		return k
	}
	if k := findOpenExtension(openMatches[:], name); k != nil {
		if k.match == nil {
			k.match = openMatch.match
		}
		return k
	}
	return &openMatch
}

// protocolMatch returns the name of the match that iptables implies for a protocol.
func protocolMatch(p rules.Protocol) string {
	switch {
	case p == mobility:
		return "mh"
	case int(p) < len(protocolNames):
		return matchName(protocolNames[p])
	}
	return ""
}

// matchesOf returns the matches of a module. If the model does not represent one of its options,
// the result is a single unknown match.
func (r *ruleReader) matchesOf(m *module) []rules.Match {
	mr := moduleReader{ruleReader: r, module: m, effect: xt.MatchEffect(m.kernelName)}
	found := m.match(&mr)
	if mr.isUnknown {
		text, complete := mr.unknownText()
		if mr.effect == rules.ReadsVarying && !complete {
			mr.effect = rules.ReadsHistory // it may match all packets or none
		}
		return []rules.Match{rules.Unknown{
			Text: text, Effect: mr.effect, State: mr.state,
			Ignores: xt.MatchIgnores(m.kernelName),
		}}
	}
	return found
}

// unknownText returns the text of an unknown match or target. complete reports that an equal match
// or target in the kernel has the same text. Otherwise the text is the words of the rule, for
// example because an option is unknown.
func (r *moduleReader) unknownText() (text string, complete bool) {
	words := 2 // -m or -j, and the name
	for _, o := range r.options {
		words += 1 + r.extension.optionSpelled(o.name).values
		if o.not {
			words++
		}
	}
	if r.text == "" || words != len(r.module.words) {
		return rawText(r.module.words), false
	}
	return r.text, true
}

// requireProtocol reports an error unless the rule matches one of the protocols.
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

// requiredOption returns an option of the module. If it was not given, requiredOption reports an
// error and returns nil.
func (r *moduleReader) requiredOption(name string) *option {
	o := r.option(name)
	if o == nil {
		r.fail(r.flag, "%s after it", name)
	}
	return o
}

// comments parses the match comment. It returns no match.
func (r *moduleReader) comments() []rules.Match {
	if o := r.requiredOption("--comment"); o != nil {
		r.rejectNegation(o.flag, o.not)
		r.comment = append(r.comment, o.values[0].text)
	}
	return nil
}
