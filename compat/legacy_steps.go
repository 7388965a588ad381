package compat

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// kernelTables are the tables with Sluice's rules, in the order in which they are written: raw
// first, so that replies to redirected queries are in their conntrack zone, and nat last.
var kernelTables = []string{"raw", "mangle", "nat"}

var families = []rules.Family{rules.IPv4, rules.IPv6}

// tables contains Sluice's rules, current or desired, by table of the kernel.
type tables map[xtables.ID]*rules.Table

// list returns the tables in the order in which they are written.
func (m tables) list() []rules.Table {
	var list []rules.Table
	for _, f := range families {
		for _, name := range kernelTables {
			if t := m[xtables.ID{Family: f, Name: name}]; t != nil {
				list = append(list, *t)
			}
		}
	}
	return list
}

// tablesOf is the inverse of list.
func tablesOf(list []rules.Table) tables {
	m := tables{}
	for i := range list {
		m[xtables.ID{Family: list[i].Family, Name: list[i].Name}] = &list[i]
	}
	return m
}

// A step replaces Sluice's rules in a table by want; nil removes them.
type step struct {
	id   xtables.ID
	want *rules.Table
	// gated reports that the gate is in place afterwards. Before the next step, packets that passed
	// without it, or without a hook that the step has registered, must leave their hook.
	gated bool
}

// steps returns the replacements that lead from the current tables to the desired ones. Each
// replacement is atomic, but not their sequence: a packet may traverse old rules in one table and
// new ones in the next. Consequences:
//
//   - raw assigns conntrack zones for DNS over UDP and captures nothing. Queries are captured by
//     nat, whatever raw contains; a reply may be lost.
//   - Only mangle and nat capture connections. If one of the two changes, the change is atomic.
//   - If both change, capture may move from one to the other, as with the interception mode.
//     Between the two replacements a connection could traverse neither the old nor the new rules,
//     or both. Therefore mangle, which is first, contains a gate in addition to the new rules: it
//     drops TCP. Then nat is replaced, and then the gate is removed, each after
//     nft.WaitForPackets. This takes some 50 ms. A client retransmits a dropped packet: of a new
//     connection after a second (TCP_TIMEOUT_INIT), of an established one after 200 ms
//     (TCP_RTO_MIN).
//   - A family without rules of Sluice captures nothing and needs no gate.
//
// A rollback executes the steps in reverse order through the same states, and is as safe. A process
// that is killed between two steps leaves old rules, new rules, or the gate.
func steps(want, current tables) []step {
	var list []step
	for _, f := range families {
		list = append(list, familySteps(f, want, current)...)
	}
	return list
}

func familySteps(f rules.Family, want, current tables) []step {
	var list []step
	changed := func(name string) bool {
		id := xtables.ID{Family: f, Name: name}
		return !sameTable(want[id], current[id])
	}
	held := func(name string) bool { return current[xtables.ID{Family: f, Name: name}] != nil }
	gated := changed("mangle") && changed("nat") && (held("mangle") || held("nat"))
	for _, name := range kernelTables {
		if !changed(name) {
			continue
		}
		id := xtables.ID{Family: f, Name: name}
		s := step{id: id, want: want[id]}
		if name == "mangle" && gated {
			s.want = withGate(f, s.want, notEstablished())
		}
		s.gated = gated && name != "raw"
		list = append(list, s)
	}
	if gated {
		id := xtables.ID{Family: f, Name: "mangle"}
		list = append(list, step{id: id, want: want[id]})
	}
	return list
}

// sameTable reports whether two tables have the same rules. nil means a table without rules.
func sameTable(a, b *rules.Table) bool {
	if a == nil || b == nil {
		return a == b
	}
	return len(compare(rules.Ruleset{Tables: []rules.Table{*a}},
		rules.Ruleset{Tables: []rules.Table{*b}})) == 0
}

// gateChain is the chain that drops TCP while tables are being replaced.
const gateChain = ChainPrefix + "GATE"

// anyTCP matches the packets that must not traverse the rules of both backends.
func anyTCP() []rules.Match {
	return []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}}
}

// notEstablished matches the packets of connections that have yet to be captured.
func notEstablished() []rules.Match {
	return append(anyTCP(), rules.MatchState{
		Not: true, States: rules.States(rules.Established, rules.Related),
	})
}

// gateHooks are the hooks of the gate: the hooks of Sluice's rules in mangle.
//
// At output the gate never drops answers to connection requests: TCP forgets a request if it cannot
// repeat the answer (reqsk_timer_handler). The client's next attempt would belong to an established
// connection of conntrack, which is not captured anew, and reach the application.
var gateHooks = []struct {
	chain string
	hook  rules.Hook
}{{"PREROUTING", rules.Prerouting}, {"OUTPUT", rules.Output}}

// withGate returns a copy of a mangle table, which may be nil, that before its rules drops the
// packets that match, but at output only those of connections that have yet to be captured.
func withGate(f rules.Family, t *rules.Table, prerouting []rules.Match) *rules.Table {
	gated := rules.Table{Family: f, Name: "mangle"}
	if t != nil {
		if t.Chain(gateChain) != nil {
			return t
		}
		gated.Chains = slices.Clone(t.Chains)
	}
	for _, at := range gateHooks {
		jump := rules.Rule{
			Matches: notEstablished(), Actions: []rules.Action{rules.Jump{Chain: gateChain}},
		}
		if at.hook == rules.Prerouting {
			jump.Matches = prerouting
		}
		if c := gated.Chain(at.chain); c != nil {
			c.Rules = append([]rules.Rule{jump}, c.Rules...)
			continue
		}
		gated.Chains = append(gated.Chains, rules.Chain{
			Name: at.chain, Base: save.Base("mangle", at.hook, false), Rules: []rules.Rule{jump},
		})
	}
	gated.Chains = append(gated.Chains, rules.Chain{Name: gateChain, Rules: []rules.Rule{{
		Matches: anyTCP(),
		Actions: []rules.Action{rules.Drop},
	}}})
	return &gated
}

// savesMarks reports whether the table copies marks of packets to their connections. Two such
// tables, one in each backend, break connections: the second treats the mark that the first assigns
// to a captured packet as the mark of a connection with the client's address.
func savesMarks(t *rules.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.Contains(r.Actions, rules.Action(rules.SaveMark{}))
		})
	})
}
