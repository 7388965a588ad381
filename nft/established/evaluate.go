package established

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// An evaluator decides which connections bypass the proxy.
type evaluator struct {
	*socketTable
	handle   *netlink.Handle
	ruleset  *rules.Ruleset
	ids      *ownerIDs
	deadline time.Time
	// usesSourcePorts reports whether rules match source ports.
	usesSourcePorts bool
	// uids, gids and markValues are the results of representativeIDs and representativeMarks for
	// the ruleset.
	uids, gids, markValues []uint32
	// outcomes and devices cache the results of the methods outcome and device.
	outcomes map[query]rules.Outcome
	devices  map[netip.Addr]string
}

// A query contains the properties of a first packet on which its outcome depends.
type query struct {
	hook     rules.Hook
	device   string
	protocol rules.Protocol
	pair
	sender
}

// A sender contains the properties of the sending socket that rules can match.
type sender struct {
	owner rules.Owner
	mark  uint32 // SO_MARK
}

// A decision is the result of the evaluation of a connection.
type decision uint8

const (
	keep      decision = iota // excluded, captured, or a connection of the proxy
	bypass                    // the connection bypasses the proxy
	undecided                 // the decision depends on unknown data
)

// decide evaluates a connection whose first packet has the tuple first. target is the address to
// which the connection leads; it is invalid if unknown. The conntrack entry c may be nil.
func (e *evaluator) decide(first tuple, target netip.AddrPort, c *conntrack.Entry) decision {
	initiator := e.socket(first)
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
	var decisions, inZone []decision
	for _, s := range e.senders(q.hook, initiator) {
		q.sender = s
		o := e.outcome(q)
		d := e.decideByOutcome(q, o, target)
		decisions = append(decisions, d)
		// Only rules assign a zone other than 0. Therefore, if the entry has such a zone, a sender
		// is possible only if the rules assign this zone to its packet.
		if c != nil && c.Zone != 0 && o.Undecided == "" && o.Zone == c.Zone {
			inZone = append(inZone, d)
		}
	}
	if len(inZone) > 0 {
		decisions = inZone
	}
	if decisions = slices.Compact(decisions); len(decisions) > 1 {
		return undecided
	}
	return decisions[0]
}

// decideByOutcome decides about a connection whose first packet has the outcome o.
func (e *evaluator) decideByOutcome(q query, o rules.Outcome, target netip.AddrPort) decision {
	switch {
	case o.Undecided != "":
		return undecided
	case !o.Captured() || o.ToHost:
		return keep
	case o.TProxy != 0:
		return e.decideByListener(q, o.TProxy)
	case target.Port() == o.Redirect && e.isLocal(target.Addr()),
		q.to.Port() == o.Redirect && e.isLocal(q.to.Addr()):
		return keep // the connection leads to the proxy
	}
	return bypass
}

// decideByListener decides about a connection whose first packet TPROXY assigns to the port. The
// connection is captured if its accepted socket has the user of a listener on that port.
func (e *evaluator) decideByListener(q query, port uint16) decision {
	acceptor := e.socket(tuple{q.protocol, q.reverse()})
	if acceptor == nil || e.listeners[listener{port, acceptor.UID}] {
		return keep // the connection no longer exists, or is captured
	}
	return bypass
}

// senders returns the possible senders of the first packet. If the user, the group or the mark of
// the socket s is unknown, it returns one sender for each case that the rules distinguish. s is nil
// if the socket is unknown.
func (e *evaluator) senders(h rules.Hook, s *socketInfo) []sender {
	if h != rules.Output {
		return []sender{{}}
	}
	uids, gids, marks := e.uids, e.gids, e.markValues
	if s != nil {
		// A property that no rule matches has one case: its value has no effect.
		if len(uids) > 1 {
			if uid, ok := e.ids.uid(&s.Properties); ok {
				uids = []uint32{uid}
			}
		}
		if len(gids) > 1 {
			if gid, ok := e.ids.gid(&s.Properties); ok {
				gids = []uint32{gid}
			}
		}
		if len(marks) > 1 && s.HasMark {
			marks = []uint32{s.Mark}
		}
	}
	var senders []sender
	for _, uid := range uids {
		for _, gid := range gids {
			for _, mark := range marks {
				senders = append(senders, sender{rules.Owner{UID: uid, GID: gid}, mark})
			}
		}
	}
	return senders
}

// outcome returns the outcome of the first packet under the ruleset. It caches results.
func (e *evaluator) outcome(q query) rules.Outcome {
	key := q
	if !e.usesSourcePorts {
		key.from = netip.AddrPortFrom(q.from.Addr(), 0)
	}
	if o, isCached := e.outcomes[key]; isCached {
		return o
	}
	if time.Now().After(e.deadline) {
		return rules.Outcome{Undecided: "time for all connections"}
	}
	p := rules.Packet{
		Hook: q.hook, Protocol: q.protocol, Source: q.from, Destination: q.to, Mark: q.mark,
	}
	if q.protocol == rules.TCP {
		p.Flags = rules.SYN
	}
	if q.hook == rules.Output {
		p.OutInterface, p.Owner = q.device, &q.owner
	} else {
		p.InInterface = q.device
	}
	o := diff.ExplainWithin(e.ruleset, p, diff.AgentBudget).Outcome
	cache(e.outcomes, key, o)
	return o
}

// device returns the interface of the route to an address, or "" if unknown. It caches results.
func (e *evaluator) device(a netip.Addr) string {
	if name, isCached := e.devices[a]; isCached {
		return name
	}
	if time.Now().After(e.deadline) {
		return ""
	}
	name := ""
	if routes, err := e.handle.RouteGet(a.AsSlice()); err == nil && len(routes) == 1 {
		if link, err := e.handle.LinkByIndex(routes[0].LinkIndex); err == nil {
			name = link.Attrs().Name
		}
	}
	cache(e.devices, a, name)
	return name
}

// cache adds a result to a cache. It clears a cache that contains maxCached results.
func cache[K comparable, V any](results map[K]V, key K, result V) {
	if len(results) >= maxCached {
		clear(results)
	}
	results[key] = result
}

// representativeIDs returns the bounds of each range of users, or of groups if group is true, in
// the matches of the ruleset, and an id outside all ranges if there is one. If the ranges do not
// overlap, the ruleset treats every other id like one of the returned ids.
func representativeIDs(rs *rules.Ruleset, group bool) []uint32 {
	var ranges []rules.IDRange
	for m := range allMatches(rs) {
		if owner, ok := m.(rules.MatchOwner); ok && owner.Group == group {
			ranges = append(ranges, owner.IDs...)
		}
	}
	ids := []uint32{}
	for _, r := range ranges {
		for _, id := range []uint32{r.First, r.Last} {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	outside := uint32(0)
	for _, r := range rules.Normalize(ranges) {
		if r.First > outside {
			break
		}
		if r.Last == math.MaxUint32 {
			return ids
		}
		outside = r.Last + 1
	}
	return append(ids, outside)
}

// representativeMarks returns 0 and the values with which rules compare the marks of packets. If
// the rules compare complete marks, and none with 0, they treat every other mark like 0.
func representativeMarks(rs *rules.Ruleset) []uint32 {
	marks := []uint32{0}
	for m := range allMatches(rs) {
		mark, ok := m.(rules.MatchMark)
		if ok && !mark.Conntrack && !slices.Contains(marks, mark.Value) {
			marks = append(marks, mark.Value)
		}
	}
	return marks
}

// allMatches returns the matches of all rules of a ruleset.
func allMatches(rs *rules.Ruleset) iter.Seq[rules.Match] {
	return func(yield func(rules.Match) bool) {
		for _, r := range rs.AllRules() {
			for _, m := range r.Matches {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// matchesSourcePorts reports whether rules match source ports.
func matchesSourcePorts(rs *rules.Ruleset) bool {
	for m := range allMatches(rs) {
		if port, ok := m.(rules.MatchPort); ok && port.Side == rules.Source {
			return true
		}
	}
	return false
}

// String returns the protocol and addresses, such as "tcp 10.0.0.1:1 > 10.0.0.2:80".
func (t tuple) String() string { return fmt.Sprintf("%s %s > %s", t.protocol, t.from, t.to) }
