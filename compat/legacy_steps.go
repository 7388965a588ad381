package compat

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// sluiceTables contains the names of the tables that may contain Sluice's rules, in the order in
// which they are written. raw is first, so that DNS queries have their conntrack zone before nat
// redirects them.
var sluiceTables = []string{"raw", "mangle", "nat"}

var families = []rules.Family{rules.IPv4, rules.IPv6}

// tables maps the kernel's tables to Sluice's current or desired rules in them.
type tables map[xtables.ID]*rules.Table

// list returns the tables in the order in which they are written.
func (m tables) list() []rules.Table {
	var list []rules.Table
	for _, f := range families {
		for _, name := range sluiceTables {
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

// A step replaces Sluice's rules in a table with the desired rules.
type step struct {
	id      xtables.ID
	desired *rules.Table // nil removes Sluice's rules
	// hasGate reports whether the gate exists after the step. If so, the caller must call
	// nft.WaitForPackets before the next step: packets that were already in a hook may miss the
	// gate, or chains that the step has registered.
	hasGate bool
}

// steps returns the replacements that change the current tables to the desired tables. Each
// replacement is atomic, but the sequence is not: a packet may traverse old rules in one table and
// new rules in the next. This has the following consequences:
//
//   - raw assigns conntrack zones for DNS over UDP and captures nothing. nat captures queries
//     regardless of the content of raw. During the change a reply may be lost.
//   - Only mangle and nat capture connections. If one of the two changes, the change is atomic.
//   - If both change, capture may move from one to the other, for example when the interception
//     mode changes. Between the two replacements a connection could traverse neither the old nor
//     the new rules, or both. Therefore mangle is replaced first, with the new rules and a gate,
//     which drops TCP packets of new connections. Then nat is replaced, and then the gate is
//     removed, each after nft.WaitForPackets. The gate exists for about 50 ms. A client retransmits
//     a dropped packet of a new connection after 1 s (TCP_TIMEOUT_INIT).
//   - A family that has no rules of Sluice yet captures nothing and needs no gate.
//
// A rollback passes through the same states in reverse order, and is equally safe. A process that
// is killed between two steps leaves new rules in some tables and old rules in the others, and may
// leave the gate.
func steps(desired, current tables) []step {
	var list []step
	for _, f := range families {
		list = append(list, familySteps(f, desired, current)...)
	}
	return list
}

func familySteps(f rules.Family, desired, current tables) []step {
	var list []step
	changed := func(name string) bool {
		id := xtables.ID{Family: f, Name: name}
		return !sameTable(desired[id], current[id])
	}
	hasRules := func(name string) bool { return current[xtables.ID{Family: f, Name: name}] != nil }
	needsGate := changed("mangle") && changed("nat") && (hasRules("mangle") || hasRules("nat"))
	for _, name := range sluiceTables {
		if !changed(name) {
			continue
		}
		id := xtables.ID{Family: f, Name: name}
		s := step{id: id, desired: desired[id]}
		if name == "mangle" && needsGate {
			s.desired = withGate(f, s.desired, notEstablished())
		}
		s.hasGate = needsGate && name != "raw"
		list = append(list, s)
	}
	if needsGate {
		id := xtables.ID{Family: f, Name: "mangle"}
		list = append(list, step{id: id, desired: desired[id]})
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

// gateChain is the name of the chain, called the gate, that drops TCP packets while tables are
// being replaced.
const gateChain = ChainPrefix + "GATE"

// anyTCP returns a match for all TCP packets. At prerouting the gate drops all of them while both
// backends contain rules that save marks; see SavesMarks.
func anyTCP() []rules.Match {
	return []rules.Match{rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}}
}

// notEstablished returns matches for TCP packets that are neither established nor related. The
// rules have not yet decided whether to capture their connections.
func notEstablished() []rules.Match {
	return append(anyTCP(), rules.MatchState{
		Not: true, States: rules.States(rules.Established, rules.Related),
	})
}

// captureHooks contains the hooks at which Sluice captures packets, with their built-in chains.
var captureHooks = []struct {
	chain string
	hook  rules.Hook
}{{"PREROUTING", rules.Prerouting}, {"OUTPUT", rules.Output}}

// withGate returns a copy of a mangle table with the gate before its rules. At prerouting the gate
// drops the packets that satisfy the given matches, and at output the packets of new TCP
// connections. The table may be nil. If it already has the gate, withGate returns it unchanged.
//
// At output the gate must not drop SYN-ACK packets: TCP discards a connection request if it cannot
// retransmit the SYN-ACK (reqsk_timer_handler). Conntrack, which has seen the first SYN-ACK, would
// assign the client's next SYN to the same connection. The SYN would not be captured, and would
// reach the application.
func withGate(f rules.Family, t *rules.Table, prerouting []rules.Match) *rules.Table {
	result := rules.Table{Family: f, Name: "mangle"}
	if t != nil {
		if t.Chain(gateChain) != nil {
			return t
		}
		result.Chains = slices.Clone(t.Chains)
	}
	for _, position := range captureHooks {
		jump := rules.Rule{
			Matches: notEstablished(), Actions: []rules.Action{rules.Jump{Chain: gateChain}},
		}
		if position.hook == rules.Prerouting {
			jump.Matches = prerouting
		}
		if c := result.Chain(position.chain); c != nil {
			c.Rules = append([]rules.Rule{jump}, c.Rules...)
			continue
		}
		result.Chains = append(result.Chains, rules.Chain{
			Name: position.chain, Base: save.Base("mangle", position.hook, false),
			Rules: []rules.Rule{jump},
		})
	}
	result.Chains = append(result.Chains, rules.Chain{Name: gateChain, Rules: []rules.Rule{{
		Matches: anyTCP(),
		Actions: []rules.Action{rules.Drop},
	}}})
	return &result
}

// SavesMarks reports whether the table copies marks of packets to their connections. If two
// programs or backends have such tables, connections break: the first table marks a captured
// packet, and the second table mistakes it for a packet of the proxy that has the client's address.
func SavesMarks(t *rules.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.Contains(r.Actions, rules.Action(rules.SaveMark{}))
		})
	})
}
