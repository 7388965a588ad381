package save

import (
	"container/list"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// A table is an iptables table under construction.
type table struct {
	rules.Table           // without chains
	chains      list.List // of *chain
	chainByName map[string]*chain
	filled      []*chain // chains that may have rules; see flushAll
}

// A chain is a chain of a table under construction.
type chain struct {
	name    string
	base    *rules.Base
	element *list.Element // the position in the table
	rules   ruleList
	jumps   int  // the number of rules that jump to the chain
	filled  bool // table.filled contains the chain
	// merged is set if a rule of the chain represents several combinations of addresses, which are
	// separate rules in the kernel. The rules after this rule then have other numbers than in the
	// kernel.
	merged bool
}

// build returns the resulting table. It takes the rules out of the chains.
func (t *table) build() rules.Table {
	for c := range t.eachChain {
		t.Chains = append(t.Chains, rules.Chain{Name: c.name, Base: c.base, Rules: c.rules.take()})
	}
	return t.Table
}

// eachChain calls do for each chain in order, until do returns false. do may remove the chain.
func (t *table) eachChain(do func(*chain) bool) {
	for e := t.chains.Front(); e != nil; {
		next := e.Next()
		if !do(e.Value.(*chain)) {
			return
		}
		e = next
	}
}

// add appends a chain.
func (t *table) add(c *chain) {
	c.element = t.chains.PushBack(c)
	t.chainByName[c.name] = c
}

// remove removes a chain without rules.
func (t *table) remove(c *chain) {
	t.chains.Remove(c.element)
	delete(t.chainByName, c.name)
}

// insert inserts rules into the chain.
func (t *table) insert(c *chain, at int, list []rules.Rule) {
	for i, r := range list {
		c.rules.insert(at+i, r)
		t.countJump(&r, 1)
	}
	if !c.filled && len(list) > 0 {
		c.filled = true
		t.filled = append(t.filled, c)
	}
}

// delete removes the rule at an index from the chain.
func (t *table) delete(c *chain, at int) {
	r := c.rules.delete(at)
	t.countJump(&r, -1)
}

// deleteSame removes the first rule of the chain that -D treats as equal to r. It returns false if
// there is none.
func (t *table) deleteSame(c *chain, r *rules.Rule) bool {
	found, ok := c.rules.deleteSame(r)
	if ok {
		t.countJump(&found, -1)
	}
	return ok
}

// countJump adds n to the jump count of the rule's jump target, if the rule has one.
func (t *table) countJump(r *rules.Rule, n int) {
	if to := jumpTarget(r); to != "" {
		t.chainByName[to].jumps += n
	}
}

// jumpTarget returns the chain that the rule jumps to, or "".
func jumpTarget(r *rules.Rule) string {
	jump, _ := r.Actions[len(r.Actions)-1].(rules.Jump)
	return jump.Chain
}

// flush removes all rules of a chain.
func (t *table) flush(c *chain) {
	for e := range c.rules.each {
		t.countJump(&e.rule, -1)
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

// callerOf returns a chain with a rule that jumps to the given chain, or nil.
func (t *table) callerOf(to *chain) *chain {
	for c := range t.eachChain {
		for e := range c.rules.each {
			if jumpTarget(&e.rule) == to.name {
				return c
			}
		}
	}
	return nil
}

// newTable returns a table with its built-in chains, which are empty and have the policy ACCEPT. It
// returns false if iptables has no such table.
func newTable(family rules.Family, name string) (*table, bool) {
	hooks := builtInHooks(name)
	t := &table{
		Table:       rules.Table{Family: family, Name: name, XTables: true},
		chainByName: map[string]*chain{},
	}
	for _, h := range hooks {
		t.add(&chain{name: xt.BuiltInChains[h], base: Base(name, h, false)})
	}
	return t, hooks != nil
}
