package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// loopback is the interface of the packets that a host sends to itself.
const loopback = "lo"

// ConntrackPriority is where conntrack runs among the chains of a hook (NF_IP_PRI_CONNTRACK): earlier chains choose a zone and
// know no state.
const ConntrackPriority = -200

// A Trace is the way of a packet through a ruleset.
type Trace struct {
	// Passes are the hooks that the packet traverses, in order: a packet to the host itself is sent and then arrives.
	Passes []Pass
	Fate   Fate
}

// A Pass is the traversal of one hook.
type Pass struct {
	Packet Packet // as it enters
	Steps  []Step
	Fate   Fate // of this hook
	// toLoopback tells that a changed mark has led the packet back to this host.
	toLoopback bool
}

// A Step is a rule that matched.
type Step struct {
	Table *Table
	Chain *Chain
	Index int // of the rule in the chain
	// Base is how the base chain is attached from which the rule was reached.
	Base *Base
	// Stopped is the action at which the rule ended early, or nil: a tproxy that found no listener.
	Stopped Action
}

// Rule is the rule that matched.
func (s Step) Rule() *Rule { return &s.Chain.Rules[s.Index] }

// String names the rule's place and text.
func (s Step) String() string {
	return fmt.Sprintf("%s %s %s #%d: %s", s.Table.Family, s.Table.Name, s.Chain.Name, s.Index+1, s.Rule())
}

// Explain follows a packet from the hook at which it enters through the hooks at which connections are captured: prerouting, and
// output, after which a packet to the host itself meets prerouting too. Chains at input, forward and postrouting are not followed,
// since Compile makes none there: what those of others do, such as a drop at input, is not in the fate. Nor is whether anybody
// listens (except for tproxy), and the routing of packets whose mark does not change.
func (rs *Ruleset) Explain(p Packet) Trace {
	var t Trace
	for {
		pass := rs.evaluate(p, len(t.Passes) > 0)
		t.Passes = append(t.Passes, pass)
		next, again := rs.route(pass)
		if !again {
			break
		}
		p = next
	}
	t.Fate = t.Passes[len(t.Passes)-1].Fate
	for _, pass := range t.Passes[:len(t.Passes)-1] {
		// The first pass chooses zone and redirection for good: on lo the packet keeps its conntrack entry.
		t.Fate.Zone = cmp.Or(pass.Fate.Zone, t.Fate.Zone)
		t.Fate.Redirect = cmp.Or(pass.Fate.Redirect, t.Fate.Redirect)
		t.Fate.DNATPort = cmp.Or(pass.Fate.DNATPort, t.Fate.DNATPort)
		t.Fate.Rerouted = pass.toLoopback && pass.Fate.Redirect == 0 && pass.Packet.OutInterface != loopback
	}
	return t
}

// route tells with which packet the next pass begins, if the one that ends leads back to this host.
func (rs *Ruleset) route(pass Pass) (Packet, bool) {
	p := pass.Packet
	if p.Hook != Output || pass.Fate.Dropped || pass.Fate.Undecided != "" {
		return Packet{}, false
	}
	device := p.OutInterface
	if pass.Fate.Redirect != 0 {
		p.Destination = p.redirected(pass.Fate.Redirect)
		device = loopback
	}
	if pass.Fate.DNATPort != 0 {
		p.Destination = p.toPort(pass.Fate.DNATPort)
	}
	if pass.toLoopback {
		device = loopback
	}
	if device != loopback {
		return Packet{}, false
	}
	p.Hook, p.InInterface, p.OutInterface, p.Owner = Prerouting, loopback, "", nil
	p.Mark, p.ConntrackMark = pass.Fate.Mark, pass.Fate.ConntrackMark
	return p, true
}

// redirected is the destination that a redirection to the port gives the packet (nf_nat_redirect in the kernel): from Output always
// the loopback address. At Prerouting it is the first address of the interface, of which nothing is known here: the address that
// the packet was sent to stands for it.
func (p *Packet) redirected(port uint16) netip.AddrPort {
	switch {
	case p.Hook != Output:
		return p.toPort(port)
	case p.Family() == IPv6:
		return netip.AddrPortFrom(netip.IPv6Loopback(), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

func (p *Packet) toPort(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(p.Destination.Addr(), port)
}

// localMark tells whether packets with the mark are routed to lo.
func (r Routing) localMark(f Family, mark uint32) bool {
	return slices.ContainsFunc(r.Policies, func(p PolicyRoute) bool { return p.Family == f && p.Mark == mark })
}

// BaseChains returns the base chains at a hook in the order in which the kernel runs them: by [Base.Position], then by [Base.Order].
// Where these are equal, those of NAT come last and in the order of their priorities, and others in the order of the ruleset.
func (rs *Ruleset) BaseChains(h Hook) []ChainRef {
	var chains []ChainRef
	for i := range rs.Tables {
		for j := range rs.Tables[i].Chains {
			c := &rs.Tables[i].Chains[j]
			if c.Base != nil && c.Base.Hook == h {
				chains = append(chains, ChainRef{&rs.Tables[i], c})
			}
		}
	}
	slices.SortStableFunc(chains, func(x, y ChainRef) int { return x.Chain.Base.compare(y.Chain.Base) })
	return chains
}

// compare tells which of two chains of a hook runs first: it returns a negative number if b does.
func (b *Base) compare(other *Base) int {
	byPlace := cmp.Or(cmp.Compare(b.Position(), other.Position()), cmp.Compare(b.Order, other.Order))
	switch {
	case byPlace != 0:
		return byPlace
	case b.Type == NAT && other.Type == NAT:
		return cmp.Compare(b.Priority, other.Priority)
	case b.Type == NAT:
		return 1
	case other.Type == NAT:
		return -1
	}
	return 0
}

// ChainRef is a chain and the table it belongs to.
type ChainRef struct {
	Table *Table
	Chain *Chain
}

// evaluation is the state of a packet within one hook.
type evaluation struct {
	packet  Packet // as it is by now, but for its marks
	fate    Fate
	steps   []Step
	base    *Base // of the chain that runs
	tracked bool  // the packet has a conntrack entry since an earlier hook
	zoned   bool  // the conntrack zone is decided, be it the default
	mapped  bool  // NAT is decided
	before  bool  // conntrack has not run yet at this chain
	depth   int   // of jumps
	// toLoopback is where the last change of the mark has led.
	toLoopback bool
}

// hasConnection tells whether conntrack has an entry for the packet at this chain.
func (e *evaluation) hasConnection() bool { return !e.before && e.packet.State.HasConnection() }

// evaluate runs the chains of the packet's hook. Tracked tells that the packet comes from another hook of this host.
func (rs *Ruleset) evaluate(p Packet, tracked bool) Pass {
	e := &evaluation{packet: p, tracked: tracked, mapped: tracked}
	e.fate.Mark, e.fate.ConntrackMark = p.Mark, p.ConntrackMark
	for _, c := range rs.BaseChains(p.Hook) {
		if c.Table.Family != Inet && c.Table.Family != p.Family() {
			continue
		}
		if c.Chain.Base.Type == NAT && (e.mapped || p.State != New && p.State != Related) {
			continue
		}
		e.base = c.Chain.Base
		e.before = c.Chain.Base.Position() < ConntrackPriority && !tracked
		mark := e.fate.Mark
		if !e.run(c, c.Chain.Base.Drop) {
			break
		}
		if c.Chain.Base.Type == Route && e.fate.Mark != mark {
			e.toLoopback = rs.Routing.localMark(p.Family(), e.fate.Mark)
		}
	}
	return Pass{Packet: p, Steps: e.steps, Fate: e.fate, toLoopback: e.toLoopback}
}

// run evaluates a base chain and tells whether the packet goes on to the next.
func (e *evaluation) run(c ChainRef, dropPolicy bool) bool {
	switch e.chain(c) {
	case verdictDrop:
		e.fate.Dropped = true
		return false
	case verdictUndecided:
		return false
	case verdictNone:
		e.fate.Dropped = dropPolicy
		return !dropPolicy
	}
	return true
}

// verdict is how a chain or rule ended.
type verdict uint8

const (
	verdictNone   verdict = iota // at the chain's end, or by return
	verdictAccept                // ends the base chain
	verdictDrop
	verdictReturn // by return: the rules behind it are skipped
	verdictUndecided
)

func (e *evaluation) chain(c ChainRef) verdict {
	for i := range c.Chain.Rules {
		matched, undecided := e.matches(&c.Chain.Rules[i])
		if undecided != "" {
			e.fate.Undecided = undecided
			e.steps = append(e.steps, Step{Table: c.Table, Chain: c.Chain, Index: i, Base: e.base})
			return verdictUndecided
		}
		if !matched {
			continue
		}
		switch v := e.rule(c, i); v {
		case verdictNone:
		case verdictReturn:
			return verdictNone
		default:
			return v
		}
	}
	return verdictNone
}

// matches tells whether the rule matches. A condition that the model does not know decides only if the others are fulfilled.
func (e *evaluation) matches(r *Rule) (matched bool, undecided string) {
	p := e.packet
	p.Mark, p.ConntrackMark = e.fate.Mark, e.fate.ConntrackMark
	if e.before && p.State != Untracked {
		p.State = Invalid
	}
	for _, m := range r.Matches {
		if u, ok := m.(Unknown); ok {
			undecided = u.Text
		} else if !m.Matches(&p) {
			return false, ""
		}
	}
	return undecided == "", undecided
}

// rule carries out the actions of a rule that matched.
func (e *evaluation) rule(c ChainRef, index int) verdict {
	e.steps = append(e.steps, Step{Table: c.Table, Chain: c.Chain, Index: index, Base: e.base})
	step := len(e.steps) - 1
	for _, action := range c.Chain.Rules[index].Actions {
		switch a := action.(type) {
		case Verdict:
			return [...]verdict{verdictAccept, verdictDrop, verdictReturn}[a]
		case Jump:
			target := c.Table.Chain(a.Chain)
			if target == nil || e.depth == len(c.Table.Chains) {
				// No kernel accepts a jump to nowhere or in a circle, but text from elsewhere may hold one.
				e.fate.Undecided = a.String()
				return verdictUndecided
			}
			e.depth++
			v := e.chain(ChainRef{c.Table, target})
			e.depth--
			if v == verdictNone && a.Goto {
				return verdictReturn
			}
			if v != verdictNone {
				return v
			}
		case RedirectTo:
			if !e.mapped {
				e.fate.Redirect, e.mapped = a.Port, true
				e.packet.Destination = e.packet.redirected(a.Port)
			}
			return verdictAccept
		case DNATPort:
			if !e.mapped {
				e.fate.DNATPort, e.mapped = a.Port, true
				e.packet.Destination = e.packet.toPort(a.Port)
			}
			return verdictAccept
		case TProxy:
			if e.packet.NoListener {
				e.steps[step].Stopped = a
				return verdictNone
			}
			e.fate.TProxy = a.Port
		case TProxyDrop:
			if e.packet.NoListener {
				return verdictDrop
			}
			e.fate.TProxy = a.Port
			e.fate.Mark = e.fate.Mark&^a.Mask | a.Value
			return verdictAccept
		case SetMark:
			e.fate.Mark = e.fate.Mark&^a.Mask | a.Value
		case SaveMark:
			if e.hasConnection() {
				e.fate.ConntrackMark = e.fate.Mark
			}
		case RestoreMark:
			if !e.hasConnection() {
				return verdictNone
			}
			e.fate.Mark = e.fate.ConntrackMark
		case SetZone:
			if e.before && !e.zoned {
				e.fate.Zone, e.zoned = a.Zone, true
			}
		case Unknown:
			e.fate.Undecided = a.Text
			return verdictUndecided
		}
	}
	return verdictNone
}

// String writes the rule in nft's syntax.
func (r *Rule) String() string {
	words := r.matchTexts()
	for _, a := range r.Actions {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// matchTexts writes the matches; a protocol before a port or TCP's flags is part of their text, as nft prints it.
func (r *Rule) matchTexts() []string {
	var words []string
	protocol := ""
	for i, m := range r.Matches {
		if p, ok := m.(MatchProtocol); ok && !p.Not && len(p.Protocols) == 1 && i+1 < len(r.Matches) {
			switch r.Matches[i+1].(type) {
			case MatchPort, MatchTCPFlags:
				protocol = p.Protocols[0].String()
				continue
			}
		}
		text := m.String()
		if _, ok := m.(MatchPort); ok && protocol != "" {
			text = protocol + strings.TrimPrefix(text, "th")
		}
		words = append(words, text)
	}
	return words
}
