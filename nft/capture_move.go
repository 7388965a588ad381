package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// gate returns two chains, called the gate. They drop TCP packets outside established connections
// while capture moves from one base chain to another, for example because the mode changes. Without
// the gate, a packet that is between the two chains during the commit would not be captured: it
// traversed the first chain before that chain captured, and reaches the second chain after that
// chain has stopped capturing. Therefore Apply sends three transactions:
//
//  1. Add the gate to the current rules.
//  2. Replace the rules, after all packets that entered a hook before step 1 have left it.
//  3. Delete the gate, after all packets that entered a hook before step 2 have left it.
//
// The gate accepts packets of established connections, because their capture is already decided.
// These packets include the SYN-ACK that answers a SYN. If the gate dropped the SYN-ACK, TCP would
// discard the connection request, but conntrack would keep its entry. The client's next SYN would
// then belong to an established connection: it would reach the application without capture.
//
// The three transactions take about 50 ms. A client retransmits a dropped packet after a second
// (TCP_TIMEOUT_INIT). If the process is killed in between, the namespace has the old rules, the new
// rules, or rules with the gate, which the next Apply deletes.
func gate() []rules.Chain {
	return []rules.Chain{gateChain(rules.Prerouting), gateChain(rules.Output)}
}

// gatePriority is after conntrack (-200) and before the chains that capture (-160 and later).
const gatePriority = -170

// gateChain returns the chain of the gate at a hook.
func gateChain(hook rules.Hook) rules.Chain {
	return rules.Chain{
		Name: "gate-" + hook.String(),
		Base: &rules.Base{Type: rules.Filter, Hook: hook, Priority: gatePriority},
		Rules: []rules.Rule{{
			Matches: []rules.Match{
				rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
				rules.MatchState{Not: true, States: rules.States(rules.Established, rules.Related)},
			},
			Actions: []rules.Action{rules.Drop},
			Comment: "capture is being moved",
		}},
	}
}

// withGate returns a copy of the table with the gate added.
func withGate(t *rules.Table) *rules.Table {
	result := *t
	result.Chains = append(slices.Clone(t.Chains), gate()...)
	return &result
}

// hasGate reports whether the table has the gate.
func hasGate(t *rules.Table) bool {
	return !slices.ContainsFunc(gate(), func(g rules.Chain) bool {
		c := t.Chain(g.Name)
		return !sameAttachment(&g, c) || len(c.Rules) != 1
	})
}

// movesCapture reports whether one base chain stops capturing and another one starts when the
// desired table replaces the old table. It returns false for a dormant table, which captures
// nothing, and for a table that cannot get the gate, because it has chains with the gate's names
// that are bound to rules ([foundTable.boundChains]).
func movesCapture(desired *rules.Table, old *foundTable) bool {
	if old.dormant || slices.ContainsFunc(gate(), func(c rules.Chain) bool {
		return old.boundChains[c.Name]
	}) {
		return false
	}
	before, after := capturingChains(&old.Table), capturingChains(desired)
	return attachedElsewhere(before, after) && attachedElsewhere(after, before)
}

// attachedElsewhere reports whether one of the chains differs from each of the others in its hook,
// type, priority or policy.
func attachedElsewhere(chains, others []*rules.Chain) bool {
	return slices.ContainsFunc(chains, func(c *rules.Chain) bool {
		return !slices.ContainsFunc(others, func(o *rules.Chain) bool { return sameAttachment(c, o) })
	})
}

// capturingChains returns the base chains that contain, or reach by jumps, a rule that captures.
func capturingChains(t *rules.Table) []*rules.Chain {
	var chains []*rules.Chain
	for i := range t.Chains {
		if c := &t.Chains[i]; c.Base != nil && reachesCapture(t, c, map[string]bool{}) {
			chains = append(chains, c)
		}
	}
	return chains
}

// reachesCapture reports whether the chain contains, or reaches by jumps, a rule that captures.
func reachesCapture(t *rules.Table, c *rules.Chain, visited map[string]bool) bool {
	if c == nil || visited[c.Name] {
		return false
	}
	visited[c.Name] = true
	for i := range c.Rules {
		for _, a := range c.Rules[i].Actions {
			switch a := a.(type) {
			case rules.RedirectTo, rules.DNATTo, rules.TProxy:
				return true
			case rules.Jump:
				if reachesCapture(t, t.Chain(a.Chain), visited) {
					return true
				}
			}
		}
	}
	return false
}

// encodeGate returns the transaction that adds the gate to the table. It replaces chains that an
// earlier, interrupted call has left behind.
func encodeGate(old *rules.Table, generation uint32) (*Transaction, error) {
	e := newEncoder(generation)
	e.table = old
	for _, c := range gate() {
		if old.Chain(c.Name) != nil {
			e.deleteWithRules(&c)
		}
		e.writeChain(&c)
		if err := e.writeRule(&c, 0, nil); err != nil {
			return nil, err
		}
	}
	return e.transaction(), nil
}

// commitIntermediate commits the intermediate transaction of the step, and waits until all packets
// that entered a hook before the commit have left it.
func (a *applier) commitIntermediate(s step) error {
	if s.intermediateReplaces && a.mayHaveReplaced {
		// As in beforeCommit: the kernel did not execute the replacement whose answer was lost, or
		// another process has replaced its result.
		a.rulesReplaced, a.mayHaveReplaced, a.lost = false, false, nil
	}
	err := a.conn.commit(s.intermediate)
	// If the answer was lost, the kernel may have executed the transaction.
	if lost := (*nlmsg.LostError)(nil); err == nil || errors.As(err, &lost) {
		a.gateAdded = true
		if s.intermediateReplaces {
			a.mayHaveReplaced, a.lost = err != nil && !a.rulesReplaced, err
			a.rulesReplaced = true
		}
		WaitForPackets()
	}
	return diagnose(err, &a.desired)
}

// removeGateAfterFailure deletes the gate if failure is not nil and this call has added the gate.
// It returns the failure, joined with the error of the deletion, if any.
func (a *applier) removeGateAfterFailure(failure error) error {
	if failure == nil || !a.gateAdded {
		return failure
	}
	if a.rulesReplaced {
		a.result.Outcome = Replaced
	}
	e := newEncoder(anyGeneration)
	e.table = &a.desired.Tables[0]
	for _, c := range gate() {
		e.deleteWithRules(&c)
	}
	t := e.transaction()
	err := a.conn.commit(t)
	for range maxAttempts {
		if !needsRetry(err) {
			break
		}
		err = a.conn.commit(t)
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return failure
	}
	a.result.Outcome = Replaced
	return errors.Join(failure,
		fmt.Errorf("new TCP connections are dropped until the rules are applied again, because "+
			"the chains gate-* cannot be deleted: %w", err))
}

// deleteWithRules deletes a chain and its rules.
func (e *encoder) deleteWithRules(c *rules.Chain) {
	e.deleteRule(c, nil)
	e.deleteChain(c)
}
