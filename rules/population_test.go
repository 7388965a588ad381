package rules_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A population contains packets that represent all packets of a family at a hook. Its packets are
// all combinations of values of the fields. The values of a field are at and next to the boundaries
// in rules. Of several values that no rule distinguishes, the population contains only one.
type population struct {
	hook rules.Hook
	// dimensions contains, for each field, the changes that set its values.
	dimensions [][]change
}

// A change sets one field of a packet.
type change func(*rules.Packet)

// newPopulation collects the values that the rulesets contain.
func newPopulation(f rules.Family, h rules.Hook, rulesets ...rules.Ruleset) *population {
	parts := collectParts(rulesets)
	p := &population{hook: h, dimensions: [][]change{
		parts.protocols(f),
		parts.addresses(f, h, rules.Source), parts.addresses(f, h, rules.Destination),
		parts.ports(h, rules.Source), parts.ports(h, rules.Destination),
		parts.interfaces(h), parts.states(), parts.flags(h),
		parts.marks(false), parts.marks(true), parts.listeners(),
	}}
	if h == rules.Output {
		p.dimensions = append(p.dimensions, parts.owners())
	}
	return p
}

// long reports whether the tests have their long form: they compare every combination with the
// recorded runs, and more combinations with the reference.
func long() bool { return os.Getenv("SLUICE_LONG") == "1" }

// sampleLimit is the maximum number of packets of a population that are compared with a recorded
// run.
func sampleLimit() int {
	if long() {
		return math.MaxInt
	}
	return 200
}

// size returns the number of combinations.
func (p *population) size() int {
	n := 1
	for _, d := range p.dimensions {
		n *= len(d)
	}
	return n
}

// each calls do with every possible packet among the combinations, or among a fixed sample of limit
// combinations if there are more. It ends when do returns false.
func (p *population) each(limit int, do func(rules.Packet) bool) {
	size := p.size()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range min(size, limit) {
		if size > limit {
			i = random.IntN(size)
		}
		if packet, possible := p.packet(i); possible && !do(packet) {
			return
		}
	}
}

// packet returns one combination, and reports whether such a packet is possible.
func (p *population) packet(index int) (packet rules.Packet, possible bool) {
	packet.Hook = p.hook
	for _, d := range p.dimensions {
		d[index%len(d)](&packet)
		index /= len(d)
	}
	return normalize(packet)
}

// normalize clears the fields that the protocol of the packet does not have, and reports whether
// the packet is possible.
func normalize(p rules.Packet) (rules.Packet, bool) {
	if p.Protocol != rules.TCP && p.Protocol != rules.UDP {
		p.Source = netip.AddrPortFrom(p.Source.Addr(), 0)
		p.Destination = netip.AddrPortFrom(p.Destination.Addr(), 0)
	}
	if p.Protocol != rules.TCP {
		p.Flags = 0
	}
	return p, p.State.HasConnection() || p.ConntrackMark == 0
}

// ruleParts contains the matches, actions and policy routes of rulesets.
type ruleParts struct {
	matches  []rules.Match
	actions  []rules.Action
	policies []rules.PolicyRoute
}

// collectParts returns the matches, actions and policy routes of the rulesets.
func collectParts(rulesets []rules.Ruleset) ruleParts {
	var parts ruleParts
	for _, rs := range rulesets {
		parts.policies = append(parts.policies, rs.Routing.Policies...)
		for _, rule := range rs.AllRules() {
			parts.matches = append(parts.matches, rule.Matches...)
			parts.actions = append(parts.actions, rule.Actions...)
		}
	}
	return parts
}

// matchesOf returns the matches of one type, without repetitions.
func matchesOf[M rules.Match](parts ruleParts) []M {
	var found []M
	seen := map[string]bool{}
	for _, m := range parts.matches {
		m, ok := m.(M)
		if ok && !seen[fmt.Sprint(m)] {
			seen[fmt.Sprint(m)] = true
			found = append(found, m)
		}
	}
	return found
}

// classes returns one value of each class of values at a hook. The values of a class satisfy the
// same matches.
func classes[T comparable, M rules.Match](
	h rules.Hook, matches []M, values []T, set func(*rules.Packet, T),
) []T {
	var distinct []T
	tried, seen := map[T]bool{}, map[string]bool{}
	for _, value := range values {
		if tried[value] {
			continue
		}
		tried[value] = true
		p := rules.Packet{Hook: h, Protocol: rules.TCP}
		set(&p, value)
		if signature := fmt.Sprint(fulfilled(matches, p)); !seen[signature] {
			seen[signature] = true
			distinct = append(distinct, value)
		}
	}
	return distinct
}

// changesForClasses returns the changes for one value of each class.
func changesForClasses[T comparable, M rules.Match](
	h rules.Hook, matches []M, values []T, set func(*rules.Packet, T),
) []change {
	return changesFor(classes(h, matches, values, set), set)
}

// changesFor returns the changes for all values.
func changesFor[T any](values []T, set func(*rules.Packet, T)) []change {
	changes := make([]change, len(values))
	for i, value := range values {
		changes[i] = func(p *rules.Packet) { set(p, value) }
	}
	return changes
}

func (parts ruleParts) protocols(f rules.Family) []change {
	icmp := rules.ICMP
	if f == rules.IPv6 {
		icmp = rules.ICMPv6
	}
	return changesFor([]rules.Protocol{rules.TCP, rules.UDP, icmp}, func(
		p *rules.Packet, protocol rules.Protocol,
	) {
		p.Protocol = protocol
	})
}

// addressValues returns typical addresses, and the addresses at and next to both ends of each
// range.
func (parts ruleParts) addressValues(f rules.Family, side rules.Side) []netip.Addr {
	texts := []string{"10.244.1.5", "192.0.2.1", "127.0.0.1", "127.0.0.2"}
	if f == rules.IPv6 {
		texts = []string{"fd00:10:244:1::5", "2001:db8::1", "::1", "::ffff:10.1.2.3"}
	}
	var values []netip.Addr
	for _, text := range texts {
		values = append(values, netip.MustParseAddr(text))
	}
	for _, m := range matchesOf[rules.MatchAddr](parts) {
		if m.Family() != f || m.Side != side {
			continue
		}
		for _, r := range m.Ranges {
			values = append(values, r.From().Prev(), r.From(), r.To(), r.To().Next())
		}
	}
	return slices.DeleteFunc(values, func(a netip.Addr) bool { return !a.IsValid() })
}

func (parts ruleParts) addresses(f rules.Family, h rules.Hook, side rules.Side) []change {
	return changesForClasses(h, matchesOf[rules.MatchAddr](parts), parts.addressValues(f, side), func(
		p *rules.Packet, a netip.Addr,
	) {
		setAddr(p, side, a)
	})
}

func setAddr(p *rules.Packet, side rules.Side, a netip.Addr) {
	end := &p.Source
	if side == rules.Destination {
		end = &p.Destination
	}
	*end = netip.AddrPortFrom(a, end.Port())
}

// portValues returns typical ports, and the ports at and next to both ends of each range.
func (parts ruleParts) portValues(side rules.Side) []uint16 {
	values := []uint16{8080, 40000}
	for _, m := range matchesOf[rules.MatchPort](parts) {
		for _, r := range m.Ports {
			if m.Side == side {
				values = append(values, r.First-1, r.First, r.Last, r.Last+1)
			}
		}
	}
	return values
}

func (parts ruleParts) ports(h rules.Hook, side rules.Side) []change {
	return changesForClasses(h, matchesOf[rules.MatchPort](parts), parts.portValues(side), func(
		p *rules.Packet, port uint16,
	) {
		setPort(p, side, port)
	})
}

func setPort(p *rules.Packet, side rules.Side, port uint16) {
	end := &p.Source
	if side == rules.Destination {
		end = &p.Destination
	}
	*end = netip.AddrPortFrom(end.Addr(), port)
}

// interfaceValues returns two typical interfaces, another one, the interfaces in the rules, and
// interfaces whose names begin with their names.
func (parts ruleParts) interfaceValues() []string {
	values := []string{"lo", "eth0", "foreign"}
	for _, m := range matchesOf[rules.MatchInterface](parts) {
		for _, n := range m.Names {
			values = append(values, n.Name, n.Name+"9")
		}
	}
	return values
}

// interfaces has a separate class for lo, because a packet that is sent over lo arrives again.
func (parts ruleParts) interfaces(h rules.Hook) []change {
	set := func(p *rules.Packet, name string) { setInterface(p, h, name) }
	lo, others := parts.interfaceValues()[:1], parts.interfaceValues()[1:]
	matches := matchesOf[rules.MatchInterface](parts)
	return append(changesFor(lo, set), changesForClasses(h, matches, others, set)...)
}

func setInterface(p *rules.Packet, h rules.Hook, name string) {
	if h == rules.Output {
		p.OutInterface = name
	} else {
		p.InInterface = name
	}
}

// idValues returns root, a typical id, and the ids at and next to both ends of each range.
func (parts ruleParts) idValues(group bool) []uint32 {
	values := []uint32{0, 5000}
	for _, m := range matchesOf[rules.MatchOwner](parts) {
		for _, r := range m.IDs {
			if m.Group == group {
				values = append(values, r.First-1, r.First, r.Last, r.Last+1)
			}
		}
	}
	return values
}

func (parts ruleParts) owners() []change {
	matches := matchesOf[rules.MatchOwner](parts)
	ids := func(group bool, set func(*rules.Packet, uint32)) []uint32 {
		return classes(rules.Output,
			slices.DeleteFunc(slices.Clone(matches), func(m rules.MatchOwner) bool {
				return m.Group != group
			}),
			parts.idValues(group), set)
	}
	owners := []*rules.Owner{nil}
	for _, uid := range ids(false, func(p *rules.Packet, id uint32) {
		p.Owner = &rules.Owner{UID: id}
	}) {
		for _, gid := range ids(true, func(p *rules.Packet, id uint32) {
			p.Owner = &rules.Owner{GID: id}
		}) {
			owners = append(owners, &rules.Owner{UID: uid, GID: gid})
		}
	}
	return changesFor(owners, func(p *rules.Packet, o *rules.Owner) { p.Owner = o })
}

// markValues returns the marks that a rule matches or sets, or that a policy route matches. Without
// such marks, all marks are in one class.
func (parts ruleParts) markValues() []uint32 {
	values := []uint32{0}
	for _, m := range matchesOf[rules.MatchMark](parts) {
		values = append(values, m.Value)
	}
	for _, a := range parts.actions {
		switch a := a.(type) {
		case rules.SetMark:
			values = append(values, a.Value)
		case rules.TProxyDrop:
			values = append(values, a.Value)
		}
	}
	for _, p := range parts.policies {
		values = append(values, p.Mark)
	}
	slices.Sort(values)
	if values = slices.Compact(values); len(values) > 1 {
		values = append(values, 7)
	}
	return values
}

func (parts ruleParts) marks(conntrack bool) []change {
	return changesFor(parts.markValues(), func(p *rules.Packet, mark uint32) {
		if conntrack {
			p.ConntrackMark = mark
		} else {
			p.Mark = mark
		}
	})
}

// states returns all states if a rule matches states or marks, and otherwise only two states, which
// NAT treats differently.
func (parts ruleParts) states() []change {
	values := []rules.State{rules.New, rules.Established}
	if len(matchesOf[rules.MatchState](parts)) > 0 || len(matchesOf[rules.MatchMark](parts)) > 0 {
		values = append(values, rules.Related, rules.Invalid, rules.Untracked)
	}
	return changesFor(values, func(p *rules.Packet, s rules.State) { p.State = s })
}

func (parts ruleParts) flags(h rules.Hook) []change {
	values := []rules.TCPFlags{rules.SYN, rules.ACK, rules.SYN | rules.ACK, rules.RST, 0}
	return changesForClasses(h, matchesOf[rules.MatchTCPFlags](parts), values, func(
		p *rules.Packet, f rules.TCPFlags,
	) {
		p.Flags = f
	})
}

func (parts ruleParts) listeners() []change {
	values := []bool{false}
	for _, a := range parts.actions {
		switch a.(type) {
		case rules.TProxy, rules.TProxyDrop:
			values = []bool{false, true}
		}
	}
	return changesFor(values, func(p *rules.Packet, none bool) { p.NoListener = none })
}
