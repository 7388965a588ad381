package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// gate returns two chains that drop TCP packets of connections that have yet to be captured, while
// capture moves from one base chain to another, as with the interception mode. One transaction is
// not enough for that: a packet between the two chains during the commit has passed the first when
// it did not capture yet, and reaches the second when it no longer captures. Therefore
//
//  1. the gate is added to the current rules,
//  2. the rules are replaced, after all packets that passed without the gate have left the hook,
//  3. the gate is deleted, after all packets that passed the hook without a new chain have left it.
//
// Packets of established connections pass: capture does not depend on them, and a refused answer to
// a connection request would make TCP forget the request, so that the client's next attempt, for
// conntrack established and not captured anew, would reach the application.
//
// This takes some 50 ms. A client retransmits a dropped packet after a second (TCP_TIMEOUT_INIT). A
// process that is killed leaves old rules, new rules, or the gate, which the next Apply deletes.
func gate() []rules.Chain {
	return []rules.Chain{gateAt(rules.Prerouting), gateAt(rules.Output)}
}

// gatePriority is between conntrack and the chains that capture.
const gatePriority = -170

func gateAt(hook rules.Hook) rules.Chain {
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

// withGate returns the table with the gate.
func withGate(t *rules.Table) *rules.Table {
	gated := *t
	gated.Chains = append(slices.Clone(t.Chains), gate()...)
	return &gated
}

// hasGate reports whether the table has the gate.
func hasGate(t *rules.Table) bool {
	return !slices.ContainsFunc(gate(), func(g rules.Chain) bool {
		c := t.Chain(g.Name)
		return c == nil || !sameAttachment(&g, c) || len(c.Rules) != 1
	})
}

// movesCapture reports whether a base chain stops capturing and another one begins to.
func movesCapture(want *rules.Table, old *foundTable) bool {
	if old.dormant {
		return false
	}
	after, before := capturing(want), capturing(&old.Table)
	return lacksOneOf(after, before) && lacksOneOf(before, after)
}

// lacksOneOf reports whether a chain of list is attached nowhere in other.
func lacksOneOf(other, list []*rules.Chain) bool {
	return slices.ContainsFunc(list, func(c *rules.Chain) bool {
		return !slices.ContainsFunc(other, func(o *rules.Chain) bool {
			return sameAttachment(c, o)
		})
	})
}

// capturing returns the base chains from which a rule that captures can be reached.
func capturing(t *rules.Table) []*rules.Chain {
	var list []*rules.Chain
	for i := range t.Chains {
		if c := &t.Chains[i]; c.Base != nil && reachesCapture(t, c, map[string]bool{}) {
			list = append(list, c)
		}
	}
	return list
}

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

// encodeGate returns the transaction that adds the gate to the table.
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

// commitIntermediate executes the intermediate transaction of the step.
func (a *applier) commitIntermediate(s step) error {
	err := a.conn.commit(s.intermediate)
	lost := (*nlmsg.LostError)(nil)
	if err == nil || errors.As(err, &lost) {
		a.gateAdded, a.rulesReplaced = true, a.rulesReplaced || err == nil && s.intermediateReplaces
		WaitForPackets()
	}
	return diagnose(err)
}

// removeGateAfter deletes the gate after a failure, and returns the failure.
func (a *applier) removeGateAfter(failure error) error {
	if failure == nil || !a.gateAdded {
		return failure
	}
	if a.rulesReplaced {
		a.result.Outcome = Replaced
	}
	e := newEncoder(0)
	e.table = &a.desired.Tables[0]
	for _, c := range gate() {
		e.deleteWithRules(&c)
	}
	t := e.transaction()
	err := a.conn.commit(t)
	for range maxAttempts {
		if !isRace(err) {
			break
		}
		err = a.conn.commit(t)
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return failure
	}
	a.result.Outcome = Replaced
	return errors.Join(failure,
		fmt.Errorf("the rules are in place, but let no new TCP connection through: %w", err))
}

// deleteWithRules deletes a chain and its rules.
func (e *encoder) deleteWithRules(c *rules.Chain) {
	e.deleteRule(c, nil)
	e.deleteChain(c)
}
