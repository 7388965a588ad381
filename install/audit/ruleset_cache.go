package audit

import (
	"reflect"
	"sync"

	"github.com/sluice-mesh/sluice/rules"
)

// cachedRulesets is the number of rulesets in the cache. It is small, because most pods of a node
// have the same parameters.
const cachedRulesets = 4

// rulesetCache contains the rulesets of the redirections that were used last. Without it, compiling
// at each audit would cause three quarters of the allocations of an idle agent. It is safe for
// concurrent use. The zero value is ready to use.
type rulesetCache struct {
	mu sync.Mutex
	// last contains the redirections in the order of their last use, the latest first.
	last []compiledRedirection
}

type compiledRedirection struct {
	redirection
	ruleset rules.Ruleset
}

// ruleset returns the ruleset of a redirection that is not empty. The caller must not change the
// ruleset or the redirection.
func (c *rulesetCache) ruleset(r redirection) (rules.Ruleset, error) {
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
	if len(c.last) < cachedRulesets {
		c.last = append(c.last, compiledRedirection{})
	}
	copy(c.last[1:], c.last)
	c.last[0] = compiledRedirection{r, rs}
	return rs, nil
}

// mustRuleset returns the ruleset of a redirection that has been compiled successfully before.
func (c *rulesetCache) mustRuleset(r redirection) rules.Ruleset {
	rs, err := c.ruleset(r)
	if err != nil {
		panic(err)
	}
	return rs
}
