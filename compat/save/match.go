package save

import (
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// readMatch parses "-m NAME".
func (r *ruleReader) readMatch(flag word, not bool) {
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

// matchName returns the kernel's name of a match that iptables also accepts by another name.
func matchName(name string) string {
	switch name {
	case "icmpv6", "ipv6-icmp":
		return "icmp6"
	}
	return name
}

// matchNamed returns the extension of the match with the name, or unknownExtension.
func matchNamed(name string) *extension {
	if e := knownMatches()[name]; e != nil {
		return e
	}
	return &unknownExtension
}

// protocolMatch returns the name of the match that "-p PROTOCOL" implies in iptables, or an empty
// name.
func protocolMatch(p rules.Protocol) string {
	switch {
	case p == mobility:
		return "mh"
	case int(p) < len(protocolNames):
		return matchName(protocolNames[p])
	}
	return ""
}

// moduleMatches returns the matches of the model for a match in the text. If the model does not
// represent the match with its options, the result is a single unknown match.
func (r *ruleReader) moduleMatches(m *module) []rules.Match {
	mr := moduleReader{ruleReader: r, module: m, effect: xt.MatchEffect(m.kernelName)}
	if m.hasUnknownWords {
		return []rules.Match{mr.anyEffect()}
	}
	var found []rules.Match
	if m.match != nil {
		found = m.match(&mr)
	} else {
		mr.readText()
	}
	switch {
	case !mr.isUnknown && mr.repeatsOption():
		return []rules.Match{mr.anyEffect()}
	case mr.isUnknown:
		text, complete := mr.unknownText()
		if mr.effect == rules.ReadsVarying && !complete {
			// With invalid values or a repeated option, the match may match all packets or none.
			mr.effect = rules.ReadsHistory
		}
		return []rules.Match{rules.Unknown{
			Text: text, Effect: mr.effect, State: mr.state,
			Ignores: xt.MatchIgnores(m.kernelName),
		}}
	}
	return found
}
