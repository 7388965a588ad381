package compat

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// kernelTables are the tables that hold rules of ours, in the order in which they are written: raw first, so that the answers to a
// query that nat redirects find its zone, and nat last.
var kernelTables = []string{"raw", "mangle", "nat"}

var families = []rules.Family{rules.IPv4, rules.IPv6}

// holding is what is ours, or to be ours, in the tables of the kernel.
type holding map[xtables.ID]*rules.Table

// list returns the tables in the order in which they are written.
func (h holding) list() []rules.Table {
	var list []rules.Table
	for _, f := range families {
		for _, name := range kernelTables {
			if t := h[xtables.ID{Family: f, Name: name}]; t != nil {
				list = append(list, *t)
			}
		}
	}
	return list
}

// holdingOf is the reverse of list.
func holdingOf(tables []rules.Table) holding {
	h := holding{}
	for i := range tables {
		h[xtables.ID{Family: tables[i].Family, Name: tables[i].Name}] = &tables[i]
	}
	return h
}

// A step is one replacement of a table: its rules of ours become those wanted; none if want is nil.
type step struct {
	id   xtables.ID
	want *rules.Table
}

// steps lists the replacements that make the wanted holding of the one that is there. Each is atomic, but they are not so together: a
// packet may meet old rules in one table and new ones in the next. What that means:
//
//   - raw chooses conntrack zones for DNS over UDP and captures nothing. Whatever it is beside nat, queries are captured as nat says;
//     an answer may be lost.
//   - Only mangle and nat capture connections. If one of the two changes, the change is atomic.
//   - If both change, capture may move from one to the other, as with the mode. Between the two replacements a connection that old and
//     new rules capture would then meet neither of them, or both. So in mangle, which is first, a gate goes up together with the new
//     rules: TCP is dropped. Then nat is replaced, and then the gate goes. That takes less than a millisecond or two; whoever meets the gate
//     sends again, a new connection after a second (TCP_TIMEOUT_INIT), an established one after 200 ms (TCP_RTO_MIN).
//   - Where nothing of ours was in a family, nothing is captured that could bypass, and there is no gate.
//
// The reverse of the steps, each table put back to what it was, passes through the same states, so that an undone change is as safe. And
// a process that is killed between two steps leaves old rules, new ones, or the gate.
func steps(want, live holding) []step {
	var list []step
	for _, f := range families {
		list = append(list, familySteps(f, want, live)...)
	}
	return list
}

func familySteps(f rules.Family, want, live holding) []step {
	var list []step
	changed := func(name string) bool {
		id := xtables.ID{Family: f, Name: name}
		return !sameTable(want[id], live[id])
	}
	held := func(name string) bool { return live[xtables.ID{Family: f, Name: name}] != nil }
	gated := changed("mangle") && changed("nat") && (held("mangle") || held("nat"))
	for _, name := range kernelTables {
		if !changed(name) {
			continue
		}
		id := xtables.ID{Family: f, Name: name}
		s := step{id, want[id]}
		if name == "mangle" && gated {
			s.want = withGate(f, s.want)
		}
		list = append(list, s)
	}
	if gated {
		id := xtables.ID{Family: f, Name: "mangle"}
		list = append(list, step{id, want[id]})
	}
	return list
}

// sameTable tells whether two tables have the same rules, where nil is none.
func sameTable(a, b *rules.Table) bool {
	if a == nil || b == nil {
		return a == b
	}
	return len(compare(rules.Ruleset{Tables: []rules.Table{*a}}, rules.Ruleset{Tables: []rules.Table{*b}})) == 0
}

// gateChain drops what must wait.
const gateChain = chainPrefix + "GATE"

// gateHooks are where the gate is: on the way of all packets that mangle's rules of ours see.
var gateHooks = []struct {
	chain string
	hook  rules.Hook
}{{"PREROUTING", rules.Prerouting}, {"OUTPUT", rules.Output}}

// withGate is a mangle table, or none, in which nothing of TCP comes to the rules that it has.
func withGate(f rules.Family, t *rules.Table) *rules.Table {
	gated := rules.Table{Family: f, Name: "mangle"}
	if t != nil {
		if t.Chain(gateChain) != nil {
			return t
		}
		gated.Chains = slices.Clone(t.Chains)
	}
	jump := rules.Rule{Actions: []rules.Action{rules.Jump{Chain: gateChain}}}
	for _, at := range gateHooks {
		if c := gated.Chain(at.chain); c != nil {
			c.Rules = append([]rules.Rule{jump}, c.Rules...)
			continue
		}
		gated.Chains = append(gated.Chains, rules.Chain{
			Name: at.chain, Base: save.Base("mangle", at.hook, false), Rules: []rules.Rule{jump},
		})
	}
	gated.Chains = append(gated.Chains, rules.Chain{Name: gateChain, Rules: []rules.Rule{{
		Matches: []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}},
		Actions: []rules.Action{rules.Drop},
	}}})
	return &gated
}

// savesMarks tells whether the table copies marks of packets to their connections. Two such tables, one of each engine, destroy connections:
// the mark that the first gives to a captured packet is to the second that of a connection in the client's name.
func savesMarks(t *rules.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool { return slices.Contains(r.Actions, rules.Action(rules.SaveMark{})) })
	})
}
