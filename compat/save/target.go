package save

import (
	"github.com/sluice-mesh/sluice/rules"
)

// readTarget parses "-j TARGET", "-j CHAIN" or "-g CHAIN". As in iptables, a target takes
// precedence over a chain with the same name.
func (r *ruleReader) readTarget(flag word, not bool) {
	r.rejectNegation(flag, not)
	r.recordOnce(flag, givenTarget)
	isGoto := flag.raw == "-g" || flag.raw == "--goto"
	name := r.next("a target or a chain")
	target := knownTargets()[name.text]
	chain := r.table().chainByName[name.text]
	isChain := chain != nil
	switch {
	case target != nil && !isGoto:
	case isChain && chain.base != nil:
		r.fail(name, "a target or a chain that is not built in")
		return
	case isChain:
		jump := rules.Jump{Chain: name.text, Goto: isGoto}
		target = &extension{allListed: true, target: func(*moduleReader) rules.Action { return jump }}
	case isGoto:
		r.fail(name, "a chain of table %s", r.table().Name)
		return
	case !isChainName(name.text):
		r.fail(name, "a target or a chain")
		return
	default:
		target = &unknownExtension
	}
	r.target = &module{extension: target, flag: name, words: append(make([]word, 0, 6), flag, name)}
	r.modules = append(r.modules, r.target)
}

// action returns the action of the rule's target. It returns nil if the rule has no target, if the
// target does not affect packets, or after some errors.
func (r *ruleReader) action() rules.Action {
	if r.target == nil {
		return nil
	}
	mr := moduleReader{ruleReader: r, module: r.target}
	for _, o := range r.target.options {
		r.rejectNegation(o.flag, o.not)
	}
	if r.target.hasUnknownWords {
		return mr.anyEffect()
	}
	var a rules.Action
	if r.target.target != nil {
		a = r.target.target(&mr)
	} else {
		mr.readText()
	}
	switch {
	case a != nil && !mr.isUnknown && mr.repeatsOption():
		return mr.anyEffect()
	case mr.isUnknown:
		text, _ := mr.unknownText()
		return rules.Unknown{Text: text, Effect: mr.effect, State: mr.state}
	}
	return a
}
