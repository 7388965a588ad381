// Package xfrm reads the IPsec policies of a network namespace, and determines which of them drop
// packets without IPsec.
//
// The kernel looks up the policy for outgoing packets with their route, before they traverse the
// rules, and again if a rule changes the route. It looks up the policy for incoming packets before
// it delivers them. It applies no policy to packets over the loopback interface.
package xfrm

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// A Drop is a policy that drops packets.
type Drop struct {
	Family      rules.Family
	IsInbound   bool
	Source      netip.Prefix // the packets to which the policy applies
	Destination netip.Prefix
	Protocol    rules.Protocol // 0: all
	// RequiresIPsec reports whether the policy drops only packets without IPsec.
	RequiresIPsec bool
	Reason        string // why the policy drops the packets, as a clause
	Text          string // the policy in the syntax of the ip command
}

// IsGeneral reports whether the policy applies to the packets of all hosts.
func (d *Drop) IsGeneral() bool {
	return d.Source.Bits() == 0 && (d.IsInbound || d.Destination.Bits() == 0)
}

// maxObjects is the maximum number of policies, and of states, of a namespace. A process of the pod
// can add any number. It is a variable for tests.
var maxObjects = 10_000

// Drops returns the policies that drop packets of sockets, in the kernel's order: policies that
// block packets, policies that require IPsec for incoming packets, and policies that require IPsec
// for outgoing packets although no state for it exists. It omits policies for a mark or a virtual
// interface, policies for loopback addresses, and policies for packets to which another
// policy with a lower priority number applies. A kernel without IPsec has none. More than 10,000
// policies or states are an error.
func Drops(ns *netns.NS) (drops []Drop, err error) {
	err = ns.Do(func() error {
		drops, err = readDrops()
		return err
	})
	return drops, err
}

// readDrops is like [Drops] for the namespace of the thread.
func readDrops() ([]Drop, error) {
	policies, err := list(nl.XFRM_MSG_GETPOLICY, nl.XFRM_MSG_NEWPOLICY, decodePolicy)
	if isNotSupported(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the xfrm policies: %w", err)
	}
	states, err := list(nl.XFRM_MSG_GETSA, nl.XFRM_MSG_NEWSA, decodeState)
	if err != nil {
		return nil, fmt.Errorf("list the xfrm states: %w", err)
	}
	slices.SortStableFunc(policies, func(a, b policy) int { return cmp.Compare(a.priority, b.priority) })
	var drops []Drop
	for i := range policies {
		p := &policies[i]
		reason := p.dropReason(states)
		if reason == "" || p.destination.Addr().IsLoopback() && p.destination.Bits() > 0 ||
			slices.ContainsFunc(policies[:i], func(earlier policy) bool { return earlier.precedes(p) }) {
			continue
		}
		drops = append(drops, Drop{
			Family: p.family, IsInbound: p.direction == directionIn, Source: p.source, Destination: p.destination,
			Protocol: p.protocol, RequiresIPsec: p.action == actionAllow, Reason: reason, Text: p.String(),
		})
	}
	blocked, err := defaultDrops()
	return append(drops, blocked...), err
}

// A template is an encapsulation that a policy requires.
type template struct {
	destination netip.Addr
	spi, reqID  uint32
	protocol    uint8
	mode        uint8
	isOptional  bool
}

// A policy is an IPsec policy.
type policy struct {
	family              rules.Family
	source, destination netip.Prefix
	protocol            rules.Protocol
	priority            uint32
	direction, action   uint8
	hasOtherSelectors   bool // has selectors besides those above
	isIgnored           bool // is for a socket, a mark or a virtual interface
	templates           []template
}

// A state is a security association.
type state struct {
	destination netip.Addr
	spi, reqID  uint32
	protocol    uint8
	mode        uint8
}

// String formats the policy like the ip command, without its templates.
func (p *policy) String() string {
	text := fmt.Sprintf("ip xfrm policy src %s dst %s", p.source, p.destination)
	if p.protocol != 0 {
		text += fmt.Sprintf(" proto %s", p.protocol)
	}
	text += " dir " + map[uint8]string{directionIn: "in", directionOut: "out"}[p.direction]
	if p.action != actionAllow {
		text += " action block"
	}
	return fmt.Sprintf("%s priority %d", text, p.priority)
}

// dropReason returns why the policy drops packets, or "".
func (p *policy) dropReason(states []state) string {
	switch {
	case p.isIgnored, p.direction != directionIn && p.direction != directionOut:
		return ""
	case p.action != actionAllow:
		return "it blocks them"
	}
	for _, t := range p.templates {
		switch {
		case t.isOptional:
		case p.direction == directionIn:
			return "it requires IPsec, which packets of the mesh do not have"
		case !slices.ContainsFunc(states, t.isSatisfiedBy):
			return "it requires IPsec, and no state for it exists"
		}
	}
	return ""
}

// isSatisfiedBy reports whether the kernel can use the state for the template.
func (t template) isSatisfiedBy(s state) bool {
	return t.protocol == s.protocol && t.mode == s.mode && s.spi != 0 &&
		(t.reqID == 0 || t.reqID == s.reqID) && (t.spi == 0 || t.spi == s.spi) &&
		(t.destination.IsUnspecified() || t.destination == s.destination)
}

// precedes reports whether the kernel applies the policy to all packets to which other applies.
func (p *policy) precedes(other *policy) bool {
	contains := func(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }
	return !p.hasOtherSelectors && !p.isIgnored && p.family == other.family && p.direction == other.direction &&
		p.priority < other.priority && (p.protocol == 0 || p.protocol == other.protocol) &&
		contains(p.source, other.source) && contains(p.destination, other.destination)
}

// The directions and actions of policies (linux/xfrm.h). The policies of sockets have larger
// directions.
const (
	directionIn      = 0
	directionOut     = 1
	directionForward = 2
	actionAllow      = 0
)

// decodePolicy decodes the body of a message about a policy.
func decodePolicy(body []byte) (p policy, err error) {
	if len(body) < nl.SizeofXfrmUserpolicyInfo {
		return p, nlmsg.ErrMalformed
	}
	m := nl.DeserializeXfrmUserpolicyInfo(body)
	p.family = route.FamilyOf(int(m.Sel.Family))
	p.destination = netip.PrefixFrom(addressOf(p.family, m.Sel.Daddr), int(m.Sel.PrefixlenD))
	p.source = netip.PrefixFrom(addressOf(p.family, m.Sel.Saddr), int(m.Sel.PrefixlenS))
	p.protocol = rules.Protocol(m.Sel.Proto)
	p.hasOtherSelectors = m.Sel.DportMask != 0 || m.Sel.SportMask != 0 || m.Sel.Ifindex != 0
	p.priority, p.direction, p.action = m.Priority, m.Dir, m.Action
	p.isIgnored = p.direction > directionForward || p.family == rules.Inet
	a := nlmsg.Attributes(body[nl.SizeofXfrmUserpolicyInfo:])
	if id, ok := a.HostNumber(nl.XFRMA_IF_ID); ok && id != 0 {
		p.isIgnored = true
	}
	if b := a.Get(nl.XFRMA_MARK); len(b) == nl.SizeofXfrmMark {
		mark := nl.DeserializeXfrmMark(b)
		p.isIgnored = p.isIgnored || mark.Value&mark.Mask != 0
	}
	for b := range slices.Chunk(a.Get(nl.XFRMA_TMPL), nl.SizeofXfrmUserTmpl) {
		if len(b) < nl.SizeofXfrmUserTmpl {
			return p, nlmsg.ErrMalformed
		}
		t := nl.DeserializeXfrmUserTmpl(b)
		p.templates = append(p.templates, template{
			destination: addressOf(route.FamilyOf(int(t.Family)), t.XfrmId.Daddr), spi: t.XfrmId.Spi,
			protocol: t.XfrmId.Proto, reqID: t.Reqid, mode: t.Mode, isOptional: t.Optional != 0,
		})
	}
	return p, nil
}

// decodeState decodes the body of a message about a state.
func decodeState(body []byte) (state, error) {
	if len(body) < nl.SizeofXfrmUsersaInfo {
		return state{}, nlmsg.ErrMalformed
	}
	m := nl.DeserializeXfrmUsersaInfo(body)
	return state{
		destination: addressOf(route.FamilyOf(int(m.Family)), m.Id.Daddr), spi: m.Id.Spi,
		protocol: m.Id.Proto, reqID: m.Reqid, mode: m.Mode,
	}, nil
}

// addressOf returns the address. An IPv4 address has the first four bytes.
func addressOf(family rules.Family, a nl.XfrmAddress) netip.Addr {
	if family == rules.IPv6 {
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte(a[:4]))
}

// list returns the objects of a dump. A change during the dump may be missed until the next call.
func list[T any](request, answer int, decode func(body []byte) (T, error)) (objects []T, err error) {
	for m, err := range nlmsg.Dump(unix.NETLINK_XFRM, nlmsg.NewRequest(uint16(request), unix.NLM_F_DUMP)) {
		if err != nil {
			return nil, err
		}
		if m.Type != uint16(answer) {
			continue
		}
		o, err := decode(m.Body)
		if err != nil {
			return nil, err
		}
		if len(objects) == maxObjects {
			return nil, fmt.Errorf("the namespace has more than %d", maxObjects)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// getDefault is the type of messages about the default policies (XFRM_MSG_GETDEFAULT), and
// defaultBlock the value of a default policy that blocks packets (XFRM_USERPOLICY_BLOCK).
const (
	getDefault   = 0x28
	defaultBlock = 1
)

// defaultDrops returns the default policies that drop packets to which no policy applies. Kernels
// before Linux 5.15 have none.
func defaultDrops() ([]Drop, error) {
	var drops []Drop
	// struct xfrm_userpolicy_default: in, fwd, out
	_, err := nlmsg.Request(unix.NETLINK_XFRM, nlmsg.NewRequest(getDefault, 0, 0, 0, 0),
		func(m nlmsg.Message) error {
			if m.Type != getDefault || len(m.Body) < 3 {
				return nil
			}
			for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
				all := netip.PrefixFrom(rules.ByFamily(family, netip.IPv4Unspecified(), netip.IPv6Unspecified()), 0)
				for i, direction := range []string{"in", "fwd", "out"} {
					if m.Body[i] == defaultBlock && direction != "fwd" {
						drops = append(drops, Drop{
							Family: family, IsInbound: direction == "in", Source: all, Destination: all,
							Reason: "no other policy allows them",
							Text:   fmt.Sprintf("ip xfrm policy default %s block", direction),
						})
					}
				}
			}
			return nil
		})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return drops, err
}

// isNotSupported reports whether the kernel lacks IPsec.
func isNotSupported(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT)
}
