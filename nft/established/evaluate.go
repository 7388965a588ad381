package established

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// An evaluator decides which connections bypass the proxy.
type evaluator struct {
	*table
	h        *netlink.Handle
	ruleset  *rules.Ruleset
	groups   *groups
	deadline time.Time
	// sourcePorts reports that rules match the source port.
	sourcePorts bool
	// uids and gids are the representative ids of the ruleset; see representativeIDs.
	uids, gids []uint32
	outcomes   map[query]rules.Outcome
	devices    map[netip.Addr]string
}

// A query is the part of the first packet that its outcome depends on.
type query struct {
	hook     rules.Hook
	device   string
	protocol rules.Protocol
	pair
	owner    rules.Owner
	hasOwner bool
}

// A decision is the result of the evaluation of a connection.
type decision uint8

const (
	keep      decision = iota // excluded, captured, or a connection of the proxy
	bypass                    // the connection bypasses the proxy
	undecided                 // the decision depends on unknown data
)

// decide evaluates a connection whose first packet has the tuple. The target is the address that
// the connection leads to, invalid if unknown.
func (e *evaluator) decide(first tuple, target netip.AddrPort) decision {
	initiator := e.sockets[first.pair]
	q := query{protocol: first.protocol, pair: first.pair}
	if initiator != nil || e.isLocal(first.from.Addr()) {
		q.hook, q.device = rules.Output, "lo"
		if !e.isLocal(first.to.Addr()) {
			q.device = e.device(first.to.Addr())
		}
	} else {
		q.hook, q.device = rules.Prerouting, e.device(first.from.Addr())
	}
	if q.device == "" {
		return undecided
	}
	var result decision
	for i, owner := range e.owners(q.hook, initiator) {
		q.owner, q.hasOwner = owner, q.hook == rules.Output
		d := e.decideByOutcome(q, e.outcome(q), target)
		if i > 0 && d != result {
			return undecided
		}
		result = d
	}
	return result
}

// decideByOutcome decides by the outcome of the first packet.
func (e *evaluator) decideByOutcome(q query, f rules.Outcome, target netip.AddrPort) decision {
	switch {
	case f.Undecided != "":
		return undecided
	case !f.Captured() || f.ToHost:
		return keep
	case f.TProxy != 0:
		return e.decideByListener(q, f.TProxy)
	case target.Port() == f.Redirect && e.isLocal(target.Addr()),
		q.to.Port() == f.Redirect && e.isLocal(q.to.Addr()):
		return keep // the connection leads to the proxy
	}
	return bypass
}

// decideByListener decides about a connection that TPROXY captures to the port. The connection is
// captured if its socket has the user of a listener on that port.
func (e *evaluator) decideByListener(q query, port uint16) decision {
	acceptor := e.sockets[q.reversed()]
	if acceptor == nil {
		return keep // the connection no longer exists
	}
	hasUser := func(l *netlink.Socket) bool { return l.UID == acceptor.UID }
	if slices.ContainsFunc(e.listeners[port], hasUser) {
		return keep
	}
	return bypass
}

// owners returns the possible owners of the first packet. If the user or the group is unknown, it
// returns one owner for each case that the rules distinguish.
func (e *evaluator) owners(h rules.Hook, s *netlink.Socket) []rules.Owner {
	if h != rules.Output {
		return []rules.Owner{{}}
	}
	uids, gids := e.uids, e.gids
	if s != nil && s.INode != 0 {
		uids = []uint32{s.UID}
		if gid, ok := e.groups.gid(s.INode); ok {
			gids = []uint32{gid}
		}
	}
	var list []rules.Owner
	for _, uid := range uids {
		for _, gid := range gids {
			list = append(list, rules.Owner{UID: uid, GID: gid})
		}
	}
	return list
}

// outcome returns the outcome of the first packet under the ruleset. It caches results.
func (e *evaluator) outcome(q query) rules.Outcome {
	key := q
	if !e.sourcePorts {
		key.from = netip.AddrPortFrom(q.from.Addr(), 0)
	}
	if f, cached := e.outcomes[key]; cached {
		return f
	}
	if time.Now().After(e.deadline) {
		return rules.Outcome{Undecided: "time for all connections"}
	}
	p := rules.Packet{
		Hook: q.hook, Protocol: q.protocol, Source: q.from, Destination: q.to,
	}
	if q.protocol == rules.TCP {
		p.Flags = rules.SYN
	}
	if q.hook == rules.Output {
		p.OutInterface = q.device
	} else {
		p.InInterface = q.device
	}
	if q.hasOwner {
		p.Owner = &q.owner
	}
	f := diff.ExplainWithin(e.ruleset, p, diff.AgentBudget).Outcome
	e.outcomes[key] = f
	return f
}

// device returns the interface of the route to an address, or "" if unknown. It caches results.
func (e *evaluator) device(a netip.Addr) string {
	if name, cached := e.devices[a]; cached {
		return name
	}
	name := ""
	if routes, err := e.h.RouteGet(a.AsSlice()); err == nil && len(routes) == 1 {
		if link, err := e.h.LinkByIndex(routes[0].LinkIndex); err == nil {
			name = link.Attrs().Name
		}
	}
	e.devices[a] = name
	return name
}

// representativeIDs returns the bounds of each range of users or groups in the matches of the
// ruleset, and an id outside all ranges. If the ranges do not overlap, the ruleset treats every id
// like one of these.
func representativeIDs(rs *rules.Ruleset, group bool) []uint32 {
	ids := []uint32{}
	outside := uint32(1)
	for changed := true; changed; {
		changed = false
		for r := range ownerRanges(rs, group) {
			if r.First <= outside && outside <= r.Last {
				outside, changed = r.Last+1, true
			}
		}
	}
	for r := range ownerRanges(rs, group) {
		for _, id := range []uint32{r.First, r.Last} {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return append(ids, outside)
}

// ownerRanges yields the ranges of users, or of groups, in the matches of the ruleset.
func ownerRanges(rs *rules.Ruleset, group bool) func(func(rules.IDRange) bool) {
	return func(yield func(rules.IDRange) bool) {
		visitMatches(rs, func(m rules.Match) bool {
			owner, ok := m.(rules.MatchOwner)
			if !ok || owner.Group != group {
				return true
			}
			return !slices.ContainsFunc(owner.IDs, func(r rules.IDRange) bool { return !yield(r) })
		})
	}
}

// visitMatches calls visit for each match of a ruleset until visit returns false.
func visitMatches(rs *rules.Ruleset, visit func(rules.Match) bool) {
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				for _, m := range r.Matches {
					if !visit(m) {
						return
					}
				}
			}
		}
	}
}

// matchesSourcePorts reports whether rules match source ports.
func matchesSourcePorts(rs *rules.Ruleset) bool {
	found := false
	visitMatches(rs, func(m rules.Match) bool {
		port, ok := m.(rules.MatchPort)
		found = ok && port.Side == rules.Source
		return !found
	})
	return found
}

// String returns the protocol and addresses, such as "tcp 10.0.0.1:1 > 10.0.0.2:80".
func (t tuple) String() string { return fmt.Sprintf("%s %s > %s", t.protocol, t.from, t.to) }
