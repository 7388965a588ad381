package save

import (
	"container/list"

	"github.com/sluice-mesh/sluice/rules"
)

// A table is an iptables table under construction.
type table struct {
	rules.Table           // without chains
	chains      list.List // of *chain
	named       map[string]*chain
	filled      []*chain // chains that had rules since all were last flushed
}

// A chain is a chain of a table.
type chain struct {
	name   string
	base   *rules.Base
	place  *list.Element // position in the table
	rules  ruleList
	jumps  int  // number of rules that jump to it
	filled bool // it is in the table's list filled
	// merged reports that one of its rules represents several, so that rules have no numbers.
	merged bool
}

// build returns the resulting table.
func (t *table) build() rules.Table {
	for c := range t.eachChain {
		t.Chains = append(t.Chains, rules.Chain{Name: c.name, Base: c.base, Rules: c.rules.rules()})
	}
	return t.Table
}

// eachChain calls do for each chain in order, until it returns false. do may remove its chain.
func (t *table) eachChain(do func(*chain) bool) {
	for e := t.chains.Front(); e != nil; {
		next := e.Next()
		if !do(e.Value.(*chain)) {
			return
		}
		e = next
	}
}

func (t *table) add(c *chain) {
	c.place = t.chains.PushBack(c)
	t.named[c.name] = c
}

// remove deletes a chain without rules.
func (t *table) remove(c *chain) {
	t.chains.Remove(c.place)
	delete(t.named, c.name)
}

// insert inserts rules into the chain.
func (t *table) insert(c *chain, at int, list []rules.Rule) {
	for i, r := range list {
		c.rules.insert(at+i, r)
		t.count(&r, 1)
	}
	if !c.filled && len(list) > 0 {
		c.filled = true
		t.filled = append(t.filled, c)
	}
}

// delete removes the rule at an index from the chain.
func (t *table) delete(c *chain, at int) {
	r := c.rules.delete(at)
	t.count(&r, -1)
}

// deleteSame removes the first equal rule from the chain. It returns false if there is none.
func (t *table) deleteSame(c *chain, r *rules.Rule) bool {
	found, ok := c.rules.deleteSame(r)
	if ok {
		t.count(&found, -1)
	}
	return ok
}

// count updates the counters after a rule was inserted or deleted.
func (t *table) count(r *rules.Rule, n int) {
	if to := jumpOf(r); to != "" {
		t.named[to].jumps += n
	}
}

// jumpOf returns the chain that the rule jumps to, or "".
func jumpOf(r *rules.Rule) string {
	jump, _ := r.Actions[len(r.Actions)-1].(rules.Jump)
	return jump.Chain
}

// flush removes all rules of a chain.
func (t *table) flush(c *chain) {
	for e := range c.rules.each {
		t.count(&e.rule, -1)
	}
	c.rules, c.merged = ruleList{}, false
}

// flushAll removes the rules of all chains.
func (t *table) flushAll() {
	for _, c := range t.filled {
		c.filled = false
		t.flush(c)
	}
	t.filled = nil
}

// jumper returns a chain with a rule that jumps to another chain, or nil.
func (t *table) jumper(to *chain) *chain {
	for c := range t.eachChain {
		for e := range c.rules.each {
			if jumpOf(&e.rule) == to.name {
				return c
			}
		}
	}
	return nil
}
