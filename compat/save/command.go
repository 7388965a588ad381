package save

import (
	"slices"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
)

// readCommand parses a line with a command that changes the table, and executes the command.
func (p *parser) readCommand(words []word) *SyntaxError {
	var hits *rules.Hits
	if words[0].raw[0] == '[' {
		counter, ok := parseCounters(words[0].raw)
		if !ok {
			return p.errorAt(words[0], "a counter such as [12:3456]")
		}
		hits = &counter
		if words = words[1:]; len(words) == 0 {
			return p.errorAtEnd("a rule after the counter")
		}
	}
	switch words[0].raw {
	case "-A", "--append":
		return p.ruleCommand("-A", words[1:], hits)
	case "-I", "--insert":
		return p.ruleCommand("-I", words[1:], hits)
	case "-D", "--delete":
		return p.ruleCommand("-D", words[1:], hits)
	case "-F", "--flush":
		return p.flushOrDelete("-F", words[1:])
	case "-X", "--delete-chain":
		return p.flushOrDelete("-X", words[1:])
	case "-N", "--new-chain":
		if err := p.checkLength(words, 2, "the name of a new chain"); err != nil {
			return err
		}
		return p.addChain(words[1])
	case "-P", "--policy":
		return p.policyCommand(words)
	}
	return p.errorAt(words[0], "one of -A, -D, -F, -I, -N, -P and -X")
}

// checkLength returns an error unless the line has n words. missing describes the words that may be
// missing.
func (p *parser) checkLength(words []word, n int, missing string) *SyntaxError {
	if len(words) < n {
		return p.errorAtEnd("%s", missing)
	}
	if len(words) > n {
		return p.errorAt(words[n], "the line to end")
	}
	return nil
}

// chain returns the chain of the table with the name.
func (p *parser) chain(name word) (*chain, *SyntaxError) {
	c := p.table().chainByName[name.text]
	if c == nil {
		return nil, p.errorAt(name, "a chain of table %s", p.table().Name)
	}
	return c, nil
}

// policyCommand parses "-P CHAIN POLICY".
func (p *parser) policyCommand(words []word) *SyntaxError {
	if err := p.checkLength(words, 3, "a chain and its policy"); err != nil {
		return err
	}
	c, err := p.chain(words[1])
	if err != nil {
		return err
	}
	if c.base == nil {
		return p.errorAt(words[1], "a built-in chain: only these have a policy")
	}
	if p.table().Name == "nat" && words[2].is("DROP") { // accepted in ":OUTPUT DROP"
		return p.errorAt(words[2], "the policy ACCEPT: -P sets no other in table nat")
	}
	return p.setPolicy(c, words[2])
}

// flushOrDelete parses the rest of -F or -X, an optional chain. -F deletes the rules of the chain,
// or of all chains. -X deletes the chain, or all user-defined chains.
func (p *parser) flushOrDelete(name string, words []word) *SyntaxError {
	if len(words) > 1 {
		return p.errorAt(words[1], "the line to end")
	}
	if len(words) == 1 {
		c, err := p.chain(words[0])
		if err != nil {
			return err
		}
		if name == "-X" {
			return p.deleteChain(c, words[0])
		}
		p.table().flush(c)
		return nil
	}
	if name == "-F" {
		p.table().flushAll()
		return nil
	}
	for c := range p.table().eachChain {
		if c.base == nil {
			if err := p.deleteChain(c, p.words[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteChain deletes a chain. Like iptables, it rejects a built-in chain, a chain that has rules,
// and a chain to which a rule jumps. at is the word that an error names.
func (p *parser) deleteChain(c *chain, at word) *SyntaxError {
	switch {
	case c.base != nil:
		return p.errorAt(at, "a chain that is not built in")
	case c.rules.length > 0:
		return p.errorAt(at, "an empty chain to delete: %s has rules", c.name)
	case c.jumps == 0:
		p.table().remove(c)
		return nil
	case p.errs.isFull():
		// Do not search for the rule that jumps, because this error will not be reported.
		return p.errorAt(at, "a chain to delete that no rule jumps to")
	}
	return p.errorAt(at, "a chain to delete that no rule jumps to: a rule of chain %s does",
		p.table().callerOf(c).name)
}

// ruleCommand parses the rest of -A, -I or -D, and executes the command. name is the short name of
// the command.
func (p *parser) ruleCommand(name string, words []word, hits *rules.Hits) *SyntaxError {
	if len(words) == 0 {
		return p.errorAtEnd("a chain")
	}
	c, err := p.chain(words[0])
	if err != nil {
		return err
	}
	words = words[1:]
	index := c.rules.length
	if name != "-A" {
		index = 0
		if len(words) > 0 && !words[0].isOption() && !words[0].is("!") {
			if index, err = p.ruleNumber(name, c, words[0]); err != nil {
				return err
			}
			words = words[1:]
			if name == "-D" {
				if len(words) > 0 {
					return p.errorAt(words[0], "the line to end")
				}
				p.table().delete(c, index)
				return nil
			}
		}
	}
	parsed, merged, err := p.readRule(c, words, hits)
	if err != nil {
		return err
	}
	if name == "-D" {
		return p.deleteRules(c, parsed, words)
	}
	if name == "-I" {
		// iptables inserts the rules of a list of addresses one after the other at the same
		// position.
		slices.Reverse(parsed)
	}
	p.table().insert(c, index, parsed)
	c.merged = c.merged || merged
	return nil
}

// ruleNumber parses the number of a rule in its chain, counted from 1, and returns its index.
func (p *parser) ruleNumber(name string, c *chain, w word) (int, *SyntaxError) {
	if c.merged {
		const want = "no number: a rule of chain %s has more than %d combinations of addresses, " +
			"and is read as a single rule, so that the numbers of rules are unknown"
		return 0, p.errorAt(w, want, c.name, maxCombinations)
	}
	last, what := c.rules.length, "the number of a rule of chain"
	if name == "-I" {
		last, what = last+1, "a position in chain" // a new rule can follow the last rule
	}
	n, err := strconv.Atoi(w.raw)
	switch {
	case last == 0:
		return 0, p.errorAt(w, "no number: chain %s has no rules", c.name)
	case err != nil || n < 1 || n > last:
		return 0, p.errorAt(w, "%s %s, from 1 to %d", what, c.name, last)
	}
	return n - 1, nil
}

// deleteRules deletes, for each given rule, the first equal rule of the chain.
func (p *parser) deleteRules(c *chain, given []rules.Rule, words []word) *SyntaxError {
	for i := range given {
		if p.table().deleteSame(c, &given[i]) {
			continue
		}
		if len(words) == 0 {
			return p.errorAtEnd("a rule of chain %s", c.name)
		}
		w := words[0]
		w.raw = rawText(words)
		if c.merged {
			const want = "a rule of chain %s as a whole: a rule with more than %d combinations of " +
				"addresses is read as a single rule"
			return p.errorAt(w, want, c.name, maxCombinations)
		}
		return p.errorAt(w, "a rule of chain %s", c.name)
	}
	return nil
}
