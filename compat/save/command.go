package save

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
)

// shortCommand returns the short spelling of a command.
func shortCommand(name string) string {
	switch name {
	case "--append":
		return "-A"
	case "--delete":
		return "-D"
	case "--flush":
		return "-F"
	case "--insert":
		return "-I"
	case "--new-chain":
		return "-N"
	case "--policy":
		return "-P"
	case "--delete-chain":
		return "-X"
	}
	return name
}

// command reads a line that changes the table.
func (p *parser) command(words []word) *SyntaxError {
	var hits *rules.Hits
	if words[0].raw[0] == '[' {
		counter, ok := parseCounters(words[0].raw)
		if !ok {
			return p.at(words[0], "a counter, as [12:3456]")
		}
		hits = &counter
		if words = words[1:]; len(words) == 0 {
			return p.atEnd("a rule behind the counter")
		}
	}
	switch name := shortCommand(words[0].raw); name {
	case "-A", "-I", "-D":
		return p.ruleCommand(name, words[1:], hits)
	case "-F", "-X":
		return p.emptyCommand(name, words[1:])
	case "-N":
		if err := p.exactly(words, 2, "the name of a new chain"); err != nil {
			return err
		}
		return p.addChain(words[1])
	case "-P":
		return p.policyCommand(words)
	}
	return p.at(words[0], "one of -A, -D, -F, -I, -N, -P and -X")
}

// exactly checks how many words the line has.
func (p *parser) exactly(words []word, n int, missing string) *SyntaxError {
	if len(words) < n {
		return p.atEnd("%s", missing)
	}
	if len(words) > n {
		return p.at(words[n], "the line to end")
	}
	return nil
}

// chain finds a chain of the table.
func (p *parser) chain(name word) (*rules.Chain, *SyntaxError) {
	i, ok := p.chains[name.text]
	if !ok {
		return nil, p.at(name, "a chain of table %s", p.table().Name)
	}
	return &p.table().Chains[i], nil
}

// policyCommand reads "-P CHAIN POLICY".
func (p *parser) policyCommand(words []word) *SyntaxError {
	if err := p.exactly(words, 3, "a chain and its policy"); err != nil {
		return err
	}
	c, err := p.chain(words[1])
	if err != nil {
		return err
	}
	if c.Base == nil {
		return p.at(words[1], "a built-in chain: only these have a policy")
	}
	return p.setPolicy(c, words[2])
}

// emptyCommand reads "-F [CHAIN]", which takes the rules out of a chain or of all, and "-X [CHAIN]", which deletes one or all of
// users.
func (p *parser) emptyCommand(name string, words []word) *SyntaxError {
	if len(words) > 1 {
		return p.at(words[1], "the line to end")
	}
	if len(words) == 1 {
		c, err := p.chain(words[0])
		if err != nil {
			return err
		}
		if name == "-X" {
			return p.deleteChain(c, words[0])
		}
		c.Rules = nil
		return nil
	}
	for _, c := range slices.Clone(p.table().Chains) {
		switch {
		case name == "-F":
			p.table().Chain(c.Name).Rules = nil
		case c.Base == nil:
			if err := p.deleteChain(p.table().Chain(c.Name), p.words[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteChain deletes a chain that is empty and that nothing jumps to; the kernel keeps others.
func (p *parser) deleteChain(c *rules.Chain, at word) *SyntaxError {
	t := p.table()
	switch {
	case c.Base != nil:
		return p.at(at, "a chain that is not built in")
	case len(c.Rules) > 0:
		return p.at(at, "an empty chain to delete: %s has rules", c.Name)
	}
	for _, other := range t.Chains {
		for _, r := range other.Rules {
			if jump, ok := r.Actions[len(r.Actions)-1].(rules.Jump); ok && jump.Chain == c.Name {
				return p.at(at, "a chain to delete that no rule jumps to: %s does", other.Name)
			}
		}
	}
	t.Chains = slices.Delete(t.Chains, p.chains[c.Name], p.chains[c.Name]+1)
	p.index()
	return nil
}

// ruleCommand reads what is behind -A, -I or -D.
func (p *parser) ruleCommand(name string, words []word, hits *rules.Hits) *SyntaxError {
	if len(words) == 0 {
		return p.atEnd("a chain")
	}
	c, err := p.chain(words[0])
	if err != nil {
		return err
	}
	words = words[1:]
	at := len(c.Rules)
	if name != "-A" {
		at = 0
		if len(words) > 0 && !words[0].isOption() && !words[0].is("!") {
			if at, err = p.ruleNumber(name, c, words[0]); err != nil {
				return err
			}
			words = words[1:]
			if name == "-D" {
				if len(words) > 0 {
					return p.at(words[0], "the line to end")
				}
				c.Rules = slices.Delete(c.Rules, at, at+1)
				return nil
			}
		}
	}
	list, err := p.readRule(words, hits)
	if err != nil {
		return err
	}
	switch name {
	case "-A":
		c.Rules = append(c.Rules, list...)
	case "-I":
		c.Rules = slices.Insert(c.Rules, at, list...)
	default:
		return p.deleteRules(c, list, words)
	}
	return nil
}

// ruleNumber reads the place of a rule in its chain, from 1, and returns its index.
func (p *parser) ruleNumber(name string, c *rules.Chain, w word) (int, *SyntaxError) {
	last := len(c.Rules)
	if name == "-I" {
		last++ // the place behind the last rule
	}
	n, err := strconv.Atoi(w.raw)
	if err != nil || n < 1 || n > last {
		return 0, p.at(w, "the number of a rule of chain %s, from 1 to %d", c.Name, last)
	}
	return n - 1, nil
}

// deleteRules takes out the first rule that is the same, for each of the list.
func (p *parser) deleteRules(c *rules.Chain, list []rules.Rule, words []word) *SyntaxError {
	for _, r := range list {
		i := slices.IndexFunc(c.Rules, func(other rules.Rule) bool {
			return other.Comment == r.Comment && reflect.DeepEqual(other.Matches, r.Matches) && reflect.DeepEqual(other.Actions, r.Actions)
		})
		if i < 0 {
			if len(words) == 0 {
				return p.atEnd("a rule of chain %s", c.Name)
			}
			w := words[0]
			w.raw = rawText(words)
			return p.at(w, "a rule of chain %s", c.Name)
		}
		c.Rules = slices.Delete(c.Rules, i, i+1)
	}
	return nil
}
