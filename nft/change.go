package nft

import (
	"reflect"
	"slices"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Change is to.Apply in a namespace where p was found or made at a generation, see [Result.Generation]. If the kernel has the same
// generation still, nobody has written since, and it need not be asked what it has: where only elements of sets differ, these are changed
// in a fraction of the time that it takes to read a thousand of them. In all other cases, the generation 0 among them, it does what
// Apply does.
func (p *Prepared) Change(ns *netns.NS, to *Prepared, generation uint32) (Result, error) {
	var result Result
	err := inside(ns, func() (err error) {
		var done bool
		if result, done = p.changeSets(to, generation); !done {
			result, err = apply(to)
		}
		return err
	})
	return result, err
}

// changeSets changes the elements of sets, and tells whether that has made of the one ruleset the other. If not it has done nothing, or
// nothing that apply does not find.
func (p *Prepared) changeSets(to *Prepared, generation uint32) (Result, bool) {
	table := &to.ruleset.Tables[0]
	changes, same := changedSets(table, p.asFound())
	if generation == 0 || !same || len(changes) == 0 || counts(table) || !reflect.DeepEqual(p.ruleset.Routing, to.ruleset.Routing) ||
		!route.Holds(to.ruleset.Routing) {
		return Result{}, false
	}
	c, err := dial()
	if err != nil {
		return Result{}, false
	}
	a := newApplier(c, to)
	defer a.hangUp()
	a.count()
	s := step{Updated, encodeUpdate(table, changes, generation), following(generation)}
	if a.attempt(s) != nil {
		return Result{}, false
	}
	return a.result, true
}

// asFound is the table as it is found where it was made.
func (p *Prepared) asFound() *foundTable {
	found := &foundTable{Table: p.ruleset.Tables[0], elements: map[string]int{}}
	for _, m := range found.Sets() {
		if needsSet(m) { // one value is a comparison, and has no set that could be changed
			found.elements[m.Set] = len(addrElements(m))
		}
	}
	return found
}

// counts tells whether a rule has a counter, which a result is to have.
func counts(t *rules.Table) bool {
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if slices.Contains(r.Actions, rules.Action(rules.Count{})) {
				return true
			}
		}
	}
	return false
}
