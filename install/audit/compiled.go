package audit

import (
	"reflect"
	"sync"

	"github.com/sluice-mesh/sluice/rules"
)

// compiledRedirections is the number of rulesets that are kept. Most pods of a node have the same
// parameters.
const compiledRedirections = 4

// compiled keeps the rulesets of the last redirections. Compiling at each visit would make three
// quarters of the garbage of an idle agent. It is safe for concurrent use. The zero value is ready
// to use.
type compiled struct {
	mu sync.Mutex
	// last contains the redirections in the order of their last use, the latest first.
	last []compiledRedirection
}

type compiledRedirection struct {
	redirection
	ruleset rules.Ruleset
}

// ruleset returns the ruleset of a redirection that is not empty. The ruleset and the redirection
// must not be changed.
func (c *compiled) ruleset(r redirection) (rules.Ruleset, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, known := range c.last {
		if known.redirection == r || reflect.DeepEqual(known.redirection, r) {
			copy(c.last[1:i+1], c.last[:i])
			c.last[0] = known
			return known.ruleset, nil
		}
	}
	rs, err := r.compile()
	if err != nil {
		return rs, err
	}
	if len(c.last) < compiledRedirections {
		c.last = append(c.last, compiledRedirection{})
	}
	copy(c.last[1:], c.last)
	c.last[0] = compiledRedirection{r, rs}
	return rs, nil
}

// mustRuleset returns the ruleset of a redirection that was compiled before.
func (c *compiled) mustRuleset(r redirection) rules.Ruleset {
	rs, err := c.ruleset(r)
	if err != nil {
		panic(err)
	}
	return rs
}
