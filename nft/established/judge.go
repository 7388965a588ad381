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

// A judge decides which connections bypass the proxy.
type judge struct {
	*table
	h        *netlink.Handle
	ruleset  *rules.Ruleset
	groups   *groups
	deadline time.Time
	// sourcePorts reports that rules ask for the source port. Users and named groups are ids that
	// stand for all there are.
	sourcePorts bool
	users, gids []uint32
	fates       map[question]rules.Fate
	devices     map[netip.Addr]string
}

// A question is what a fate depends on.
type question struct {
	hook     rules.Hook
	device   string
	protocol rules.Protocol
	pair
	owner rules.Owner
	owned bool
}

// An opinion is what was decided about a connection.
type opinion uint8

const (
	stays     opinion = iota // excluded, the proxy's, or captured
	bypasses                 // it is to end
	undecided                // that depends on what is not known
)

// judge decides about a connection that begins with the tuple. Target is where it leads; not valid
// if that is not known.
func (j *judge) judge(first tuple, target netip.AddrPort) opinion {
	initiator := j.sockets[first.pair]
	q := question{protocol: first.protocol, pair: first.pair}
	if initiator != nil || j.isLocal(first.from.Addr()) {
		q.hook, q.device = rules.Output, "lo"
		if !j.isLocal(first.to.Addr()) {
			q.device = j.device(first.to.Addr())
		}
	} else {
		q.hook, q.device = rules.Prerouting, j.device(first.from.Addr())
	}
	if q.device == "" {
		return undecided
	}
	var answer opinion
	for i, owner := range j.owners(q.hook, initiator) {
		q.owner, q.owned = owner, q.hook == rules.Output
		one := j.opinion(q, j.fate(q), target)
		if i > 0 && one != answer {
			return undecided
		}
		answer = one
	}
	return answer
}

// opinion decides by the fate of the first packet.
func (j *judge) opinion(q question, f rules.Fate, target netip.AddrPort) opinion {
	switch {
	case f.Undecided != "":
		return undecided
	case !f.Captured() || f.ToHost:
		return stays
	case f.TProxy != 0:
		return j.byListener(q, f.TProxy)
	case target.Port() == f.Redirect && j.isLocal(target.Addr()), q.to.Port() == f.Redirect && j.isLocal(q.to.Addr()):
		return stays // it leads to the proxy
	}
	return bypasses
}

// byListener decides about a connection that a transparent listener should have: its socket has the
// user of the listener.
func (j *judge) byListener(q question, port uint16) opinion {
	acceptor := j.sockets[q.reversed()]
	if acceptor == nil {
		return stays // there is no connection
	}
	same := func(l *netlink.Socket) bool { return l.UID == acceptor.UID }
	if slices.ContainsFunc(j.listeners[port], same) {
		return stays
	}
	return bypasses
}

// owners returns who may have sent the first packet: one owner if user and group are known or do
// not matter, else one for each case that the rules tell apart.
func (j *judge) owners(h rules.Hook, s *netlink.Socket) []rules.Owner {
	if h != rules.Output {
		return []rules.Owner{{}}
	}
	users, gids := j.users, j.gids
	if s != nil && s.INode != 0 {
		users = []uint32{s.UID}
		if gid, ok := j.groups.of(s.INode); ok {
			gids = []uint32{gid}
		}
	}
	var list []rules.Owner
	for _, uid := range users {
		for _, gid := range gids {
			list = append(list, rules.Owner{UID: uid, GID: gid})
		}
	}
	return list
}

// fate returns what the ruleset does to the first packet.
func (j *judge) fate(q question) rules.Fate {
	asked := q
	if !j.sourcePorts {
		asked.from = netip.AddrPortFrom(q.from.Addr(), 0)
	}
	if f, known := j.fates[asked]; known {
		return f
	}
	if time.Now().After(j.deadline) {
		return rules.Fate{Undecided: "time for all connections"}
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
	if q.owned {
		p.Owner = &q.owner
	}
	f := diff.ExplainWithin(j.ruleset, p, diff.AgentBudget).Fate
	j.fates[asked] = f
	return f
}

// device returns the interface by which the host reaches an address; empty if that is not known.
func (j *judge) device(a netip.Addr) string {
	if name, known := j.devices[a]; known {
		return name
	}
	name := ""
	if routes, err := j.h.RouteGet(a.AsSlice()); err == nil && len(routes) == 1 {
		if link, err := j.h.LinkByIndex(routes[0].LinkIndex); err == nil {
			name = link.Attrs().Name
		}
	}
	j.devices[a] = name
	return name
}

// idsOf returns one id of each range that a match of the ruleset names, and one that none names:
// all that the rules tell apart, as long as ranges do not overlap.
func idsOf(rs *rules.Ruleset, group bool) []uint32 {
	ids := []uint32{}
	other := uint32(1)
	for named := true; named; {
		named = false
		for r := range ownerRanges(rs, group) {
			if r.First <= other && other <= r.Last {
				other, named = r.Last+1, true
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
	return append(ids, other)
}

// ownerRanges yields the ranges of users, or of groups, that matches of the ruleset name.
func ownerRanges(rs *rules.Ruleset, group bool) func(func(rules.IDRange) bool) {
	return func(yield func(rules.IDRange) bool) {
		matches(rs, func(m rules.Match) bool {
			owner, ok := m.(rules.MatchOwner)
			if !ok || owner.Group != group {
				return true
			}
			return !slices.ContainsFunc(owner.IDs, func(r rules.IDRange) bool { return !yield(r) })
		})
	}
}

// matches visits all matches of a ruleset, until the function returns false.
func matches(rs *rules.Ruleset, visit func(rules.Match) bool) {
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

// asksForSourcePorts reports whether rules match source ports.
func asksForSourcePorts(rs *rules.Ruleset) bool {
	asks := false
	matches(rs, func(m rules.Match) bool {
		port, ok := m.(rules.MatchPort)
		asks = ok && port.Side == rules.Source
		return !asks
	})
	return asks
}

// String describes a connection.
func (t tuple) String() string { return fmt.Sprintf("%s %s > %s", t.protocol, t.from, t.to) }
