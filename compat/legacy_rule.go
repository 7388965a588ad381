package compat

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// ruleParts contains the parts of a rule that are translated separately.
type ruleParts struct {
	comment string
	role    rules.Role
	counts  bool // whether the translated rules have a Count action
	// A packet that matches the rule satisfies all conditions of one of these lists.
	alternatives matchAlternatives
	// except contains conditions. A packet that matches the rule satisfies none of them.
	except  []rules.Match
	actions []rules.Action
}

// readRule returns the parts of the first rule, and the number of rules that they represent: two if
// the second rule is the drop after a tproxy.
func (tr *translator) readRule(list []rules.Rule) (ruleParts, int, error) {
	r, n := &list[0], 1
	actions := rules.WithoutCount(r.Actions)
	parts := ruleParts{
		comment: r.Comment, role: r.Role,
		// Every xtables rule has counters. Translate describes which rules keep their Count action
		// nevertheless.
		counts: r.KeepsEstablished() || r.Counts() && len(actions) == 0,
	}
	if tproxy, ok := tproxyWithDrop(list); ok {
		actions, n = []rules.Action{tproxy}, 2
	}
	for i, a := range actions {
		if err := tr.checkAction(a); err != nil {
			return parts, n, err
		}
		_, restores := a.(rules.RestoreMark)
		_, jumps := a.(rules.Jump)
		// Not every packet would reach an action after one of these actions. RestoreMark ends the
		// rule for packets without a connection.
		if i < len(actions)-1 && (endsChain(a) || restores || jumps) {
			return parts, n, fmt.Errorf("%s must be the last action of the rule, but is before %s", a,
				actions[i+1])
		}
		parts.actions = append(parts.actions, a)
	}
	var err error
	if parts.alternatives, parts.except, err = tr.convertMatches(r.Matches); err != nil {
		return parts, n, err
	}
	return parts, n, checkProtocol(parts)
}

// tproxyWithDrop recognizes a tproxy rule that accepts, and optionally sets a mark, followed by a
// rule that drops the same packets. The second rule applies to packets without a listener.
// tproxyWithDrop returns the xtables target TPROXY, which has the effect of both rules.
func tproxyWithDrop(list []rules.Rule) (rules.TProxyDrop, bool) {
	actions := rules.WithoutCount(list[0].Actions)
	if len(list) < 2 || len(actions) < 2 || actions[len(actions)-1] != rules.Action(rules.Accept) {
		return rules.TProxyDrop{}, false
	}
	tproxy, isTProxy := actions[0].(rules.TProxy)
	var mark rules.SetMark // between tproxy and accept, if there are three actions
	isSupported := len(actions) == 2
	if len(actions) == 3 {
		mark, isSupported = actions[1].(rules.SetMark)
	}
	drops := slices.Equal(rules.WithoutCount(list[1].Actions), []rules.Action{rules.Drop})
	return rules.TProxyDrop{
			Port: tproxy.Port, Addr: tproxy.Addr, Value: mark.Value, Mask: mark.Mask,
		},
		isTProxy && isSupported && drops && reflect.DeepEqual(list[0].Matches, list[1].Matches)
}

// checkAction returns an error if xtables does not support the action in the table or at the hook.
// It sets tr.changesMark if the action changes the mark of packets that reach later rules.
func (tr *translator) checkAction(a rules.Action) error {
	requireTable := func(table string) error {
		if tr.position.table != table {
			return fmt.Errorf("%s in table %s: xtables supports it in table %s only", a,
				tr.position.table, table)
		}
		return nil
	}
	switch a := a.(type) {
	case rules.RedirectTo, rules.DNATPort, rules.DNATTo, rules.SNATTo:
		return requireTable("nat")
	case rules.SetZone, rules.Notrack:
		return requireTable("raw")
	case rules.Reject:
		return requireTable("filter")
	case rules.TProxyDrop:
		if tr.position.hook != rules.Prerouting {
			return fmt.Errorf("%s at %s: xtables supports it at prerouting only", a,
				tr.position.hook)
		}
		return requireTable("mangle")
	case rules.TProxy:
		return errors.New("a tproxy rule must be followed by a rule that drops the same packets," +
			" because TPROXY in xtables drops packets without a listener")
	case rules.SetMark, rules.RestoreMark:
		tr.changesMark = true
	case rules.MixMark:
		tr.changesMark = tr.changesMark || !a.Conntrack
		if a.Conntrack {
			return tr.checkSavedMark(a)
		}
	case rules.SaveMark:
		return tr.checkSavedMark(a)
	case rules.Require:
		return fmt.Errorf("%s after an action: in an xtables rule all conditions precede the target",
			a)
	case rules.Verdict:
		if a == rules.Drop && tr.position.table == "nat" {
			return errors.New("iptables does not allow DROP in table nat")
		}
	case rules.Unknown:
		return fmt.Errorf("%s is unknown to the model", a)
	}
	return nil
}

// checkSavedMark returns an error if the action, which saves a mark, may run before conntrack. For
// a packet with a zone, xtables then saves the mark in a template that packets share; nftables
// saves it nowhere.
func (tr *translator) checkSavedMark(a rules.Action) error {
	if tr.position.table == "raw" {
		return fmt.Errorf("%s in table raw: xtables saves the mark for other packets too", a)
	}
	return nil
}

// checkProtocol returns an error if an action needs a protocol with ports, but a list of
// r.alternatives does not require TCP or UDP.
func checkProtocol(r ruleParts) error {
	for _, a := range r.actions {
		for _, matches := range r.alternatives {
			if needsPorts(a) && !slices.ContainsFunc(matches, isTCPOrUDP) {
				return fmt.Errorf("%s needs a match of the protocol TCP or UDP", a)
			}
		}
	}
	return nil
}

// needsPorts reports whether a rule with the action must match a protocol with ports. The kernel
// requires this for TPROXY, and iptables for the other actions.
func needsPorts(a rules.Action) bool {
	switch a := a.(type) {
	case rules.RedirectTo, rules.DNATPort, rules.TProxyDrop:
		return true
	case rules.DNATTo:
		return a.Port != 0
	}
	return false
}

// protocolAlternatives returns a match of TCP and a match of UDP, each only if a list of
// r.alternatives requires this protocol. For an action that needs ports, moveActions adds a rule
// with each of these matches.
func (r *ruleParts) protocolAlternatives() matchAlternatives {
	var list matchAlternatives
	for _, p := range []rules.Protocol{rules.TCP, rules.UDP} {
		m := rules.MatchProtocol{Protocols: []rules.Protocol{p}}
		has := slices.ContainsFunc(r.alternatives, func(matches []rules.Match) bool {
			return slices.ContainsFunc(matches, func(other rules.Match) bool {
				return matchesOnly(other, p)
			})
		})
		if has {
			list = append(list, []rules.Match{m})
		}
	}
	return list
}

// matchesOnly reports whether the match matches exactly the packets of the protocol.
func matchesOnly(m rules.Match, p rules.Protocol) bool {
	match, ok := m.(rules.MatchProtocol)
	return ok && !match.Not && slices.Equal(match.Protocols, []rules.Protocol{p})
}

// isTCPOrUDP reports whether the match matches only TCP packets or only UDP packets.
func isTCPOrUDP(m rules.Match) bool {
	return matchesOnly(m, rules.TCP) || matchesOnly(m, rules.UDP)
}

// changesMatchedField reports whether an action other than the last changes a field that the rule
// matches. Each action becomes an xtables rule with the same conditions. After the change, these
// conditions might no longer match.
func (r *ruleParts) changesMatchedField() bool {
	var mark, conntrackMark, connection bool // changed
	for i, a := range r.actions {
		if i == len(r.actions)-1 {
			break
		}
		switch a := a.(type) {
		case rules.SetMark:
			mark = true
		case rules.SaveMark:
			conntrackMark = true
		case rules.MixMark:
			mark, conntrackMark = mark || !a.Conntrack, conntrackMark || a.Conntrack
		case rules.SetZone, rules.Notrack:
			// Both change the connection of the packet: a packet with another zone starts a new
			// connection, and an untracked packet has no connection.
			connection = true
		}
	}
	return slices.ContainsFunc(r.alternatives, func(matches []rules.Match) bool {
		return slices.ContainsFunc(matches, func(m rules.Match) bool {
			switch m := m.(type) {
			case rules.MatchMark:
				return m.Conntrack && (conntrackMark || connection) || !m.Conntrack && mark
			case rules.MatchState, rules.MatchStatus, rules.MatchDirection:
				return connection
			}
			return false
		})
	})
}

// xtablesRules returns the xtables rules: one for each combination of a list of conditions and an
// action. r.except must be empty.
func (tr *translator) xtablesRules(r ruleParts) ([]rules.Rule, error) {
	if len(r.actions) == 0 && !r.counts {
		return nil, nil
	}
	var list []rules.Rule
	for i, matches := range r.alternatives {
		for j, actions := range r.actionLists() {
			rule := rules.Rule{Matches: matches, Actions: actions}
			// Each packet that satisfies matches reaches the first rule for them. Only this rule
			// has the role, so that a packet is counted once.
			if j == 0 {
				rule.Role = r.role
			}
			if len(list) == 0 {
				rule.Comment = r.comment
			}
			// Check that xtables can express the rules. The rules for the other alternatives
			// differ only in values.
			if i == 0 {
				if _, err := encodeRule(tr.family, &rule); err != nil {
					return nil, err
				}
			}
			list = append(list, rule)
		}
	}
	return list, nil
}

// actionLists returns the actions of each resulting rule: the counter, if the rule counts, and at
// most one action.
func (r *ruleParts) actionLists() [][]rules.Action {
	var count []rules.Action
	if r.counts {
		count = []rules.Action{rules.Count{}}
	}
	if len(r.actions) == 0 {
		return [][]rules.Action{count}
	}
	lists := make([][]rules.Action, len(r.actions))
	for i, a := range r.actions {
		lists[i] = append(slices.Clone(count), a)
	}
	return lists
}
