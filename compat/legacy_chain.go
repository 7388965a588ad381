package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// A translator translates a base chain, and all chains that it jumps to, for one family.
type translator struct {
	family     rules.Family
	position   tablePosition
	source     *rules.Table
	base       *rules.Base
	translated []rules.Chain
	names      map[string]bool         // the chain names that the table uses
	chains     map[continuation]string // the names of the translated chains
	// path contains the names of the chains from the base chain to the current chain.
	path        []string
	changesMark bool // whether a rule changes the mark of packets
}

// A continuation is the rest of a chain from the index of a rule, with the name of the following
// chain. If that name is empty, a packet leaves Sluice's chains at the end of the chain. A
// continuation determines the outcome of a packet completely, because Sluice's translated chains
// never return to each other.
type continuation struct {
	chain     string
	rule      int
	following string
}

// translateBaseChain translates a base chain. It returns the built-in chain that jumps to the
// translated chain, or nil if the translated chain has no rules.
func (tr *translator) translateBaseChain(name string) (*rules.Chain, error) {
	tr.path = []string{name}
	first, err := tr.translateChain(continuation{chain: name})
	if err != nil || first == "" {
		return nil, err
	}
	base := save.Base(tr.position.table, tr.position.hook, false)
	if base.Type != tr.base.Type && tr.changesMark {
		return nil, fmt.Errorf("chain %s: it changes the mark, after which the kernel reroutes packets"+
			" in a chain of type %s, but not in a chain of type %s", name, rules.Route, rules.Filter)
	}
	jump := rules.Rule{Actions: []rules.Action{rules.Jump{Chain: first}}}
	return &rules.Chain{Name: tr.position.chain, Base: base, Rules: []rules.Rule{jump}}, nil
}

// translateChain translates a chain and returns the name of the result. If the result has no rules,
// it returns the name of the following chain.
func (tr *translator) translateChain(next continuation) (string, error) {
	if name, ok := tr.chains[next]; ok {
		return name, nil
	}
	source := tr.source.Chain(next.chain)
	if source == nil {
		return "", fmt.Errorf("chain %s does not exist", next.chain)
	}
	suffix := ""
	if next.rule > 0 {
		suffix = "_REST"
	}
	name := tr.reserveChain(next.chain, suffix)
	list, err := tr.translateRules(source, next)
	if err != nil {
		return "", err
	}
	name = tr.fillChain(name, list, next.following)
	tr.chains[next] = name
	return name, nil
}

// reserveChain adds an empty chain with an unused name, and returns the name.
func (tr *translator) reserveChain(source, suffix string) string {
	stem := ChainPrefix + strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(strings.TrimPrefix(source, tr.position.table+"-")))
	name := stem[:min(len(stem), xtables.MaxChainName-len(suffix))] + suffix
	for n := 2; tr.names[name]; n++ {
		number := fmt.Sprintf("%s_%d", suffix, n)
		name = stem[:min(len(stem), xtables.MaxChainName-len(number))] + number
	}
	tr.names[name] = true
	tr.translated = append(tr.translated, rules.Chain{Name: name})
	return name
}

// fillChain sets the rules of a reserved chain, without the last rules if they have no effect, and
// returns the name of the chain. If no rules remain, it removes the chain and returns the name of
// the following chain.
func (tr *translator) fillChain(name string, list []rules.Rule, following string) string {
	for len(list) > 0 && len(list[len(list)-1].Actions) == 1 &&
		list[len(list)-1].Actions[0] == jumpTo(following) {
		list = list[:len(list)-1]
	}
	i := slices.IndexFunc(tr.translated, func(c rules.Chain) bool { return c.Name == name })
	if len(list) == 0 {
		tr.translated = slices.Delete(tr.translated, i, i+1)
		delete(tr.names, name)
		return following
	}
	if following != "" && !alwaysEnds(&list[len(list)-1]) {
		list = append(list, rules.Rule{Actions: []rules.Action{jumpTo(following)}})
	}
	tr.translated[i].Rules = list
	return name
}

// jumpTo returns the action that continues in a Sluice chain or, if the name is empty, leaves
// Sluice's chains.
func jumpTo(chain string) rules.Action {
	if chain == "" {
		return rules.Return
	}
	return rules.Jump{Chain: chain, Goto: true}
}

// alwaysEnds reports whether the rule ends the chain for every packet.
func alwaysEnds(r *rules.Rule) bool {
	return len(r.Matches) == 0 && len(r.Actions) > 0 && endsChain(r.Actions[len(r.Actions)-1])
}

// endsChain reports whether the kernel evaluates no further action and no further rule of the chain
// after the action.
func endsChain(a rules.Action) bool {
	switch a := a.(type) {
	case rules.Verdict, rules.RedirectTo, rules.DNATPort, rules.DNATTo, rules.SNATTo, rules.Reject,
		rules.TProxyDrop:
		return true
	case rules.Jump:
		return a.Goto
	}
	return false
}

// translateRules translates the rules of a chain.
func (tr *translator) translateRules(c *rules.Chain, next continuation) ([]rules.Rule, error) {
	var list []rules.Rule
	for i := next.rule; i < len(c.Rules); {
		r, n, err := tr.readRule(c.Rules[i:])
		var translated []rules.Rule
		split := false
		if err == nil && len(r.alternatives) > 0 {
			translated, split, err = tr.translateRule(r, continuation{c.Name, i + n, next.following})
		}
		if err != nil {
			return nil, wrapRuleError(c, i, err)
		}
		list = append(list, translated...)
		if split || len(translated) > 0 && alwaysEnds(&translated[len(translated)-1]) {
			break
		}
		i += n
	}
	return list, nil
}

// A ruleError names the rule that cannot be translated. It does not name the rules that jump to the
// chain of that rule.
type ruleError struct{ error }

func wrapRuleError(c *rules.Chain, i int, err error) error {
	if inner := (ruleError{}); errors.As(err, &inner) {
		return err
	}
	return ruleError{fmt.Errorf("chain %s: rule %d: %s: not supported by iptables-legacy: %w",
		c.Name, i+1, &c.Rules[i], err)}
}

// Unwrap returns the wrapped error.
func (e ruleError) Unwrap() error { return e.error }

// translateRule translates a rule. next is the continuation after the rule. split reports whether
// next was translated to a separate chain.
func (tr *translator) translateRule(
	r ruleParts, next continuation,
) (list []rules.Rule, split bool, err error) {
	needsActionChain := len(r.except) > 0 || r.changesMatchedField()
	split = needsActionChain || slices.ContainsFunc(r.actions, func(a rules.Action) bool {
		jump, ok := a.(rules.Jump)
		return ok && !jump.Goto
	})
	rest := "" // the chain of next
	if split {
		if rest, err = tr.translateChain(next); err != nil {
			return nil, false, err
		}
	}
	for i, a := range r.actions {
		if r.actions[i], err = tr.translateAction(a, next.following, rest); err != nil {
			return nil, false, err
		}
	}
	if needsActionChain {
		if r, err = tr.moveActions(r, next.chain, rest); err != nil {
			return nil, false, err
		}
	}
	list, err = tr.xtablesRules(r)
	if split && err == nil && (len(list) == 0 || !alwaysEnds(&list[len(list)-1])) {
		list = append(list, rules.Rule{Actions: []rules.Action{jumpTo(rest)}})
	}
	return list, split, err
}

// translateAction translates an action. following is the chain that follows the current chain, and
// rest is the chain with the rules after the current rule.
func (tr *translator) translateAction(
	a rules.Action, following, rest string,
) (rules.Action, error) {
	switch a := a.(type) {
	case rules.Verdict:
		switch a {
		case rules.Accept:
			return rules.Return, nil // to the built-in chain
		case rules.Return:
			return jumpTo(following), nil
		}
	case rules.Jump:
		if slices.Contains(tr.path, a.Chain) {
			return nil, fmt.Errorf("jump to chain %s forms a loop", a.Chain)
		}
		if !a.Goto {
			following = rest
		}
		tr.path = append(tr.path, a.Chain)
		chain, err := tr.translateChain(continuation{chain: a.Chain, following: following})
		tr.path = tr.path[:len(tr.path)-1]
		return jumpTo(chain), err
	}
	return a, nil
}

// moveActions moves the actions of a rule to a separate chain, followed by the chain rest. This is
// necessary if one rule for each action, with the same conditions, would not be equivalent.
func (tr *translator) moveActions(r ruleParts, source, rest string) (ruleParts, error) {
	name := tr.reserveChain(source, "_DO")
	var list []rules.Rule
	for _, m := range r.except {
		list = append(list, rules.Rule{
			Matches: []rules.Match{m}, Actions: []rules.Action{jumpTo(rest)},
		})
	}
	for i, a := range r.actions {
		action := ruleParts{alternatives: always, actions: []rules.Action{a}}
		if i == 0 {
			action.role = r.role
		}
		if needsPorts(a) {
			action.alternatives = r.protocolAlternatives()
		}
		written, err := tr.xtablesRules(action)
		if err != nil {
			return r, err
		}
		list = append(list, written...)
	}
	r.role, r.except = rules.NoRole, nil
	r.actions = []rules.Action{jumpTo(tr.fillChain(name, list, rest))}
	return r, nil
}
