package save

import (
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

// command parses a line that changes the table.
func (p *parser) command(words []word) *SyntaxError {
	var hits *rules.Hits
	if words[0].raw[0] == '[' {
		counter, ok := parseCounters(words[0].raw)
		if !ok {
			return p.at(words[0], "a counter, as [12:3456]")
		}
		hits = &counter
		if words = words[1:]; len(words) == 0 {
			return p.atEnd("a rule after the counter")
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

// exactly checks the number of words in the line.
func (p *parser) exactly(words []word, n int, missing string) *SyntaxError {
	if len(words) < n {
		return p.atEnd("%s", missing)
	}
	if len(words) > n {
		return p.at(words[n], "the line to end")
	}
	return nil
}

// chain returns a chain of the table.
func (p *parser) chain(name word) (*chain, *SyntaxError) {
	c := p.table().named[name.text]
	if c == nil {
		return nil, p.at(name, "a chain of table %s", p.table().Name)
	}
	return c, nil
}

// policyCommand parses "-P CHAIN POLICY".
func (p *parser) policyCommand(words []word) *SyntaxError {
	if err := p.exactly(words, 3, "a chain and its policy"); err != nil {
		return err
	}
	c, err := p.chain(words[1])
	if err != nil {
		return err
	}
	if c.base == nil {
		return p.at(words[1], "a built-in chain: only these have a policy")
	}
	return p.setPolicy(c, words[2])
}

// emptyCommand parses "-F [CHAIN]", which deletes the rules of a chain or of all, and "-X [CHAIN]",
// which deletes one or all user-defined chains.
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

// deleteChain deletes a chain that is empty and not a target of a jump, as the kernel requires.
func (p *parser) deleteChain(c *chain, flag word) *SyntaxError {
	switch {
	case c.base != nil:
		return p.at(flag, "a chain that is not built in")
	case c.rules.length > 0:
		return p.at(flag, "an empty chain to delete: %s has rules", c.name)
	case c.jumps == 0:
		p.table().remove(c)
		return nil
	case p.errs.areMany():
		// The search takes time, and its result is not reported.
		return p.at(flag, "a chain to delete that no rule jumps to")
	}
	return p.at(flag, "a chain to delete that no rule jumps to: %s does", p.table().jumper(c).name)
}

// ruleCommand parses the rest of -A, -I or -D.
func (p *parser) ruleCommand(name string, words []word, hits *rules.Hits) *SyntaxError {
	if len(words) == 0 {
		return p.atEnd("a chain")
	}
	c, err := p.chain(words[0])
	if err != nil {
		return err
	}
	words = words[1:]
	at := c.rules.length
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
				p.table().delete(c, at)
				return nil
			}
		}
	}
	list, merged, err := p.readRule(words, hits)
	if err != nil {
		return err
	}
	if name == "-D" {
		return p.deleteRules(c, list, words)
	}
	p.table().insert(c, at, list)
	c.merged = c.merged || merged
	return nil
}

// ruleNumber parses the number of a rule in its chain, counted from 1, and returns its index.
func (p *parser) ruleNumber(name string, c *chain, w word) (int, *SyntaxError) {
	if c.merged {
		const want = "no number: a rule of chain %s has more than %d combinations of addresses, " +
			"and is read as one"
		return 0, p.at(w, want, c.name, maxCombinations)
	}
	last := c.rules.length
	if name == "-I" {
		last++ // a new rule after the last one
	}
	n, err := strconv.Atoi(w.raw)
	if err != nil || n < 1 || n > last {
		return 0, p.at(w, "the number of a rule of chain %s, from 1 to %d", c.name, last)
	}
	return n - 1, nil
}

// deleteRules deletes, for each rule of the list, the first equal rule.
func (p *parser) deleteRules(c *chain, list []rules.Rule, words []word) *SyntaxError {
	for i := range list {
		if p.table().deleteSame(c, &list[i]) {
			continue
		}
		if len(words) == 0 {
			return p.atEnd("a rule of chain %s", c.name)
		}
		w := words[0]
		w.raw = rawText(words)
		return p.at(w, "a rule of chain %s", c.name)
	}
	return nil
}
