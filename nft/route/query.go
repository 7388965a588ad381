package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Query describes packets of a local socket without a mark.
type Query struct {
	Destination netip.Addr
	// Source is an address of the namespace; invalid: the kernel chooses the source.
	Source   netip.Addr
	UID      uint32 // of the socket
	Protocol rules.Protocol
	Port     uint16 // of the destination; 0: any. It requires a protocol.
}

// String describes the packets, such as "packets of uid 7 to 10.9.9.9".
func (q Query) String() string {
	text := fmt.Sprintf("packets of uid %d", q.UID)
	if q.Protocol != 0 {
		text = fmt.Sprintf("%s %s", q.Protocol, text)
	}
	if q.Source.IsValid() {
		text += fmt.Sprintf(" from %s", q.Source)
	}
	if q.Port != 0 {
		return fmt.Sprintf("%s to %s", text, netip.AddrPortFrom(q.Destination, q.Port))
	}
	return fmt.Sprintf("%s to %s", text, q.Destination)
}

// An Answer is the answer of the kernel to a query.
type Answer struct {
	Query Query
	// Failure is the error that the socket gets if the kernel finds no route, a route that drops
	// packets, or, unless the protocol is UDP, a route for broadcasts or multicasts; 0 otherwise.
	Failure unix.Errno
	IsLocal bool       // the packets are delivered in the namespace
	Source  netip.Addr // that the kernel chooses if the query has none
	Device  string     // the name of the interface
	Text    string     // the route in the syntax of the ip command
}

// LookUp asks the kernel for the routes of packets. The kernel applies all policy rules, including
// foreign ones. device returns the name of the interface with an index.
func LookUp(ns *netns.NS, queries []Query, device func(index int) string) ([]Answer, error) {
	var answers []Answer
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for _, q := range queries {
		a := Answer{Query: q}
		err := r.exchange(q.request(), func(m nlmsg.Message) error {
			found, err := decodeAnswer(m.Body)
			if m.Type != unix.RTM_NEWROUTE || err != nil {
				return err
			}
			a.IsLocal = found.kind == unix.RTN_LOCAL && found.encap == 0
			if q.Protocol != rules.UDP && (found.kind == unix.RTN_BROADCAST || found.kind == unix.RTN_MULTICAST) {
				a.Failure = unix.ENETUNREACH // of connect (tcp_v4_connect in net/ipv4/tcp_ipv4.c)
			}
			a.Source, a.Device, a.Text = found.preferred, device(int(found.device)), found.format(device)
			return nil
		})
		if isUnroutable(err) {
			errors.As(err, &a.Failure)
		} else if err != nil {
			return nil, fmt.Errorf("look up the route of %s: %w", q, err)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// request returns the request for the route of the packets.
func (q Query) request() []byte {
	request, message := newRouteRequest(q.Destination)
	request.AddData(nl.NewRtAttr(unix.RTA_UID, native.AppendUint32(nil, q.UID)))
	if q.Source.IsValid() {
		message.Src_len = uint8(q.Source.BitLen())
		request.AddData(nl.NewRtAttr(unix.RTA_SRC, q.Source.AsSlice()))
	}
	// The kernel refuses most other protocols.
	if q.Protocol == rules.TCP || q.Protocol == rules.UDP {
		request.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{byte(q.Protocol)}))
		if q.Port != 0 {
			request.AddData(nl.NewRtAttr(unix.RTA_DPORT, []byte{byte(q.Port >> 8), byte(q.Port)}))
		}
	}
	return request.Serialize()
}

// An Unsent is a route or policy rule that may drop packets to other hosts, or send them over the
// loopback interface. The query is an example of packets to which it may apply. Other routes and rules may take precedence: see [LookUp].
type Unsent struct {
	Query Query
	Text  string // the route or rule in the syntax of the ip command
}

// MaxUnsent is the maximum number of results of [FindUnsent], and the maximum number of policy rules
// that it considers for a table.
const MaxUnsent = 100

// FindUnsent returns the routes and policy rules of a family that may drop packets of sockets to
// other hosts, or send them over the loopback interface. A route has a result for each policy rule that looks up its
// table, unless the results are equal. The query of a result is the given example, changed to match
// the selectors of the route and the rule. A selector for sources without an address of the
// namespace does not change it, because sockets cannot have such a source. If the routes change at
// the same time, the error is [netlink.ErrDumpInterrupted].
func FindUnsent(ns *netns.NS, example Query, device func(index int) string) ([]Unsent, error) {
	r, err := openReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	addresses, err := r.addresses()
	if err != nil {
		return nil, err
	}
	family := rules.FamilyOf(example.Destination)
	u := unsent{example: example, addresses: addresses, seen: map[Unsent]bool{}}
	rulesOf := map[uint32][]foundRule{} // the policy rules that look up a table
	for _, p := range r.policyRules {
		switch {
		case p.policy.Family != family:
		case p.action == unix.FR_ACT_TO_TBL:
			if len(rulesOf[p.policy.Table]) < MaxUnsent {
				rulesOf[p.policy.Table] = append(rulesOf[p.policy.Table], p)
			}
		case !p.mayRoute() && p.action != unix.FR_ACT_NOP:
			u.add(p.selected, p.String)
		}
	}
	err = r.forEachRoute(family, unix.RT_TABLE_UNSPEC, func(found foundRoute) error {
		if (found.mayDrop() || found.sendsOverLo()) && isOfOtherHosts(found.destination.Addr()) {
			for _, p := range rulesOf[found.table] {
				u.add(p.selected.within(found.destination), func() string { return found.format(device) })
			}
		}
		return nil
	})
	return u.found, err
}

// mayDrop reports whether the route drops packets that it matches, makes connections fail, or makes
// the kernel continue with the next policy rule. The kernel also drops packets from a loopback address of IPv4 that a
// route sends by another interface than the loopback interface.
func (r *foundRoute) mayDrop() bool {
	switch r.kind {
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return true
	case unix.RTN_BROADCAST, unix.RTN_MULTICAST:
		// The kernel adds routes for the broadcast addresses of interfaces.
		return r.protocol != unix.RTPROT_KERNEL
	}
	return r.kind == unix.RTN_UNICAST && r.preferred.Is4() && r.preferred.IsLoopback() && !r.isOverLo
}

// unsent collects the results of [FindUnsent].
type unsent struct {
	example   Query
	addresses []netip.Addr // of the namespace
	found     []Unsent
	seen      map[Unsent]bool
}

// add adds a route or rule with the text, which applies to the selected packets.
func (u *unsent) add(s selection, text func() string) {
	if len(u.found) == MaxUnsent {
		return
	}
	q := u.example
	if s.destination.Bits() > 0 {
		q.Destination = addressIn(s.destination)
	}
	for _, a := range u.addresses {
		if s.source.Bits() > 0 && s.source.Contains(a) {
			q.Source = a
		}
	}
	if s.hasUID {
		q.UID = s.uid
	}
	if s.protocol != 0 {
		q.Protocol, q.Port = s.protocol, s.port
	}
	if !isOfOtherHosts(q.Destination) || slices.Contains(u.addresses, q.Destination) {
		return
	}
	found := Unsent{q, text()}
	if !u.seen[found] {
		u.seen[found] = true
		u.found = append(u.found, found)
	}
}

// isOfOtherHosts reports whether captured connections to other hosts may have the destination.
func isOfOtherHosts(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsLinkLocalUnicast() && !a.IsLoopback()
}

// addressIn returns the second address of the prefix, or its only one. The first address of a
// network may be a broadcast address.
func addressIn(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return p.Masked().Addr().Next()
}

// A selection contains selectors of a policy rule. A field is zero if the rule has no such selector
// or if the selectors are inverted.
type selection struct {
	destination, source netip.Prefix
	hasUID              bool
	uid                 uint32 // the first uid of the range
	protocol            rules.Protocol
	port                uint16 // the first port of the range of destination ports
}

// within returns the selection with the longer one of its destination and the prefix.
func (s selection) within(destination netip.Prefix) selection {
	if destination.Bits() > s.destination.Bits() {
		s.destination = destination
	}
	return s
}

// decodeSelection returns selectors of a policy rule. body is a well-formed message of
// [decodeRule].
func decodeSelection(body []byte) (s selection) {
	if native.Uint32(body[8:])&netlink.FibRuleInvert != 0 {
		return s
	}
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	if address, ok := netip.AddrFromSlice(a.Get(nl.FRA_DST)); ok {
		s.destination = netip.PrefixFrom(address, int(body[1]))
	}
	if address, ok := netip.AddrFromSlice(a.Get(nl.FRA_SRC)); ok {
		s.source = netip.PrefixFrom(address, int(body[2]))
	}
	if ids := a.Get(nl.FRA_UID_RANGE); len(ids) == 8 {
		s.hasUID, s.uid = true, native.Uint32(ids)
	}
	s.protocol = rules.Protocol(hostNumber(a.Get(nl.FRA_IP_PROTO)))
	if ports := a.Get(nl.FRA_DPORT_RANGE); len(ports) == 4 {
		s.port = native.Uint16(ports)
	}
	return s
}
