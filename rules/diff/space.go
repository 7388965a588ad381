package diff

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A space defines the bits that represent the packets of a family that enter at a hook, or a single
// packet. Sets of one space can be combined. A method with the name of a predicate, such as stateIs
// or isLocal, returns the set of the packets for which the predicate is true.
//
// In the space of a single packet a known field has no bits: a match on the field is the set of all
// packets or of no packets.
type space struct {
	*diagrams
	*layout
	family rules.Family
	hook   rules.Hook
	// single is the packet of the space; nil if the space contains all packets.
	single *onePacket
	// interfaces contains the classes of interfaces; nil in the space of one packet.
	interfaces *interfaceClasses
	// mixesRandomForms and comparesTexts are the results of compareRandomForms for the two sides.
	mixesRandomForms, comparesTexts bool
	// shared contains the effects of the rules on states that packets share.
	shared sharedState
	// cgroups contains the numbers of cgroups whose paths are in the rules (see addCgroups).
	cgroups map[cgroupPath]uint64
	// runLists is shared by the spaces of a decision; nil in the space of one packet.
	runLists *runLists
	// variables are the conditions that sets depend on besides the fields of the packet.
	variables
	// ranges caches the results of addressIn.
	ranges map[rangesKey]set
	// byNames caches the results of interfaceNamed.
	byNames map[listKey[rules.InterfaceName]]set
	// hostAddresses is [Options.HostAddresses].
	hostAddresses []netip.Addr
	// packetScope selects the rare packets of the space.
	packetScope
	// lacksAddress contains the packets whose interface has no address of the family.
	lacksAddress set
	// overLoopback contains the packets whose interface is lo, connected contains the packets with
	// a conntrack entry.
	overLoopback, connected set
	// tcp, tcpOrUDP, withPorts and isICMP contain the packets of these protocols. withNATPorts
	// contains the packets whose ports NAT can change.
	tcp, tcpOrUDP, withPorts, withNATPorts, isICMP set
	// hasUserSocket contains the packets with a socket of a user, hasKernelSocket contains the
	// packets with a socket of the kernel.
	hasUserSocket, hasKernelSocket set
	// resets contains the TCP resets in state related that the kernel may have sent for a reject
	// rule (ResetHasConnection); it is empty if no rule sends resets.
	resets set
	// excluded contains the packets with an authentication header if they are not compared.
	excluded set
	// carried caches the result of carriesConnection.
	carried *set
	// domain contains the packets that can exist; none before the first call of possible.
	domain set
	// describedDomain contains the packets that satisfy the conditions of possible except trackable.
	describedDomain set
}

// A onePacket is a packet with the values of its fields; known reports which values are known.
type onePacket struct {
	rules.Packet
	values [fieldCount]value
	known  [fieldCount]bool
	// assumed contains the texts of [rules.Trace.Assumed].
	assumed []string
}

// newSpace returns the space of all packets with the classes of interfaces.
func newSpace(f rules.Family, h rules.Hook, interfaces *interfaceClasses, d *diagrams) *space {
	s := &space{
		diagrams: d, layout: layoutOf(f), family: f, hook: h, interfaces: interfaces,
	}
	s.initFrequentSets()
	return s
}

// newPacketSpace returns the space of one packet, which may be a rare packet (see packetScope).
func newPacketSpace(p rules.Packet, m *meter) *space {
	s := &space{
		diagrams: newDiagrams(initialSizeOfSingle, m), layout: layoutOf(p.Family()),
		family: p.Family(), hook: p.Hook, single: newOnePacket(p),
	}
	s.initFrequentSets()
	s.lacksAddress = s.lacksRedirectAddress(p)
	s.domain, s.translations, s.kernelPackets, s.untracked = all, true, true, true
	return s
}

// entering returns the packets with which a walk begins. In the scope of packets that enter
// untracked, it returns only these packets; otherwise it returns all packets (see possible).
func (s *space) entering() set {
	if s.untracked && s.single == nil {
		return s.entersUntracked()
	}
	return all
}

// initFrequentSets sets the fields that contain frequently used sets.
func (s *space) initFrequentSets() {
	s.tcp, s.tcpOrUDP = s.protocolIn(rules.TCP), s.protocolIn(rules.TCP, rules.UDP)
	// NAT changes the ports of these protocols (l4proto_manip_pkt in net/netfilter/nf_nat_proto.c).
	// Since Linux 6.17 conntrack does not support ports of DCCP.
	s.withNATPorts = s.or(s.tcpOrUDP, s.protocolIn(rules.SCTP, rules.UDPLite))
	s.withPorts = s.or(s.withNATPorts, s.protocolIn(rules.DCCP))
	s.isICMP = s.protocolIn(rules.ByFamily(s.family, rules.ICMP, rules.ICMPv6))
	s.connected = s.stateIn(func(state rules.State) bool { return state.HasConnection() })
	if s.hook == rules.Output {
		s.resets = s.and(s.and(s.tcp, s.maskedEquals(flags, uint32(rules.RST), uint32(rules.RST))),
			s.stateIs(rules.Related))
	}
	s.hasUserSocket = s.within(user, []span{{
		number[uint64](userSocketBit), number[uint64](2*userSocketBit - 1),
	}})
	s.hasKernelSocket = s.is(user, number[uint8](kernelSocketUser))
	s.overLoopback = s.interfaceNamed([]rules.InterfaceName{{Name: loopback}})
}

// omitResets makes resets empty if no rule sends resets. Then all resets in state related belong to
// expected connections.
func (s *space) omitResets() {
	if !s.shared.sendsResets {
		s.resets = none
	}
}

// lacksRedirectAddress is for the space of one packet. It returns the packets whose interface has
// no address for a redirection at prerouting.
func (s *space) lacksRedirectAddress(p rules.Packet) set {
	if p.InAddress.IsValid() {
		return allIf(p.InAddress.IsUnspecified())
	}
	to := p.Destination.Addr()
	switch {
	case s.family == rules.IPv4 || p.Hook == rules.Output:
		return none
	case to.IsMulticast():
		return s.variable(variable{
			key: "address of the scope", kind: unknownBit,
			text: "whether the interface has an address of the scope of " + to.String(),
		})
	}
	// No interface has an address of the scope of deprecated addresses (ipv6_addr_scope in
	// net/ipv6/addrconf_core.c).
	return allIf(isDeprecated(to))
}

// newOnePacket returns the packet with the values of its fields.
func newOnePacket(p rules.Packet) *onePacket {
	o := &onePacket{Packet: p, values: valuesOf(p)}
	for f := range fieldCount {
		o.known[f] = true
	}
	o.known[newDestination], o.known[newPort] = false, false
	o.known[destinationType] = o.values[destinationType] != value{}
	o.known[sourceType] = o.values[sourceType] != value{}
	o.known[inAddress] = p.InAddress.IsValid() || p.Hook == rules.Output
	// Unless NoListener is set, it is unknown whether the socket of an existing connection is
	// transparent.
	o.known[noListener] = p.NoListener || p.State != rules.Established && p.State != rules.Related
	o.known[iface] = false // see interfaceNamed
	return o
}

// valuesOf returns the values of all fields except the interface. [space.packet] is the inverse
// conversion.
func valuesOf(p rules.Packet) [fieldCount]value {
	v := [fieldCount]value{
		destination: address(p.Destination.Addr()), source: address(p.Source.Addr()),
		protocol:        number(p.Protocol),
		destinationPort: number(p.Destination.Port()), sourcePort: number(p.Source.Port()),
		icmp:  number(uint16(p.ICMPType)<<8 | uint16(p.ICMPCode)),
		state: number(p.State), status: number(uint8(p.Status)), flags: number(p.Flags),
		destinationType: number(p.DestinationType), sourceType: number(p.SourceType),
		mark: number(p.Mark), connectionMark: number(p.ConntrackMark),
		noListener: oneIf(p.NoListener), reply: oneIf(p.Reply),
	}
	if addrType := addrTypeOf(p.Destination.Addr()); addrType != rules.AddrTypeUnknown {
		v[destinationType] = number(addrType)
	}
	if addrType := addrTypeOf(p.Source.Addr()); addrType != rules.AddrTypeUnknown {
		v[sourceType] = number(addrType)
	}
	if p.InAddress.IsValid() && p.Hook == rules.Prerouting {
		v[inAddress] = address(p.InAddress)
	}
	if p.State == rules.New && p.Status&rules.StatusConfirmed != 0 {
		v[state] = number(laterNew)
	}
	if p.State == rules.Established {
		v[status].low |= uint64(rules.StatusSeenReply | rules.StatusConfirmed)
	}
	if p.KernelSocket {
		v[user] = number[uint8](kernelSocketUser)
	}
	if p.Owner != nil {
		v[user], v[group] = number(userSocketBit+uint64(p.Owner.UID)), number(p.Owner.GID)
	}
	return v
}

// stateIn returns the packets in the states for which isWanted returns true.
func (s *space) stateIn(isWanted func(rules.State) bool) set {
	packets := none
	for state := rules.New; state <= rules.Untracked; state++ {
		if isWanted(state) {
			packets = s.or(packets, s.stateIs(state))
		}
	}
	return packets
}

// laterNew is an additional value of the field state: new, but not the first packet of the
// connection.
const laterNew = rules.Untracked + 1

// stateIs returns the packets in a state; rules.New includes laterNew.
func (s *space) stateIs(st rules.State) set {
	packets := s.is(state, number(st))
	if st == rules.New {
		packets = s.or(packets, s.is(state, number(laterNew)))
	}
	return packets
}

// interfaceNamed returns the packets whose interface has one of the names.
func (s *space) interfaceNamed(names []rules.InterfaceName) set {
	if s.single != nil {
		return allIf(s.isNamed(names, s.single.Interface()))
	}
	return cached(&s.byNames, keyOf(names), func() set {
		s.meter.charge(textSteps * len(names))
		s.meter.alloc(entrySize)
		return s.within(iface, s.interfaces.classSpans(names))
	})
}

// isNamed reports whether an interface has one of the names.
func (s *space) isNamed(names []rules.InterfaceName, iface string) bool {
	s.meter.charge(len(names))
	return slices.ContainsFunc(names, func(n rules.InterfaceName) bool {
		return n.Contains(iface)
	})
}
