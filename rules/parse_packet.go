package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// PacketSyntax is the syntax of [ParsePacket] for help texts.
const PacketSyntax = `{in|out} PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [dev NAME]` +
	` [uid N] [gid N] [no-socket] [kernel-socket] [mark N] [ctmark N]` +
	` [state new|established|related|invalid|untracked] [reply] [status LIST]` +
	` [flags LIST|none] [icmp TYPE[/CODE]] [no-listener] [missing-listeners LIST]` +
	` [in-address ADDRESS|none] [src-type TYPE] [dst-type TYPE] [no-reverse-path] [transparent-socket] [transparent-sender] [copy]` +
	` [bound] [selects-interface]`

// ParsePacket parses a packet from text such as
//
//	out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000
//	in tcp [fd00::9]:51000 > [fd00::5]:8080 dev eth0 state established
//
// The default device is lo for an outgoing packet to a loopback address or to its source address,
// and otherwise eth0. The default uid is 0, and the default gid is equal to the uid. The default
// ICMP type is an echo request. The default TCP flags are syn for a new connection, and otherwise
// ack. The arrow is > or ->. The error names every invalid word.
//
// The default state is new. By default, a TCP segment with given flags is established if only later
// segments of a connection have these flags, and invalid if no segment has them; an ICMP error is
// related, a message of an ICMP type that conntrack does not track is untracked, and a message of a
// type that conntrack does not know is invalid. An ICMP reply and an ICMPv6 redirect have no default
// state.
func ParsePacket(text string) (Packet, error) {
	words := strings.Fields(text)
	if len(words) > 3 && IsArrow(words[2]) {
		return Packet{}, fmt.Errorf(
			"packet %q: no direction: want in or out before the protocol", text)
	}
	if len(words) < 5 || !IsArrow(words[3]) {
		return Packet{}, fmt.Errorf("packet %q: want %s", text, PacketSyntax)
	}
	p := Packet{}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}

	switch words[0] {
	case "in":
		p.Hook = Prerouting
	case "out":
		p.Hook = Output
	default:
		fault("direction %q is not in or out", words[0])
	}
	var err error
	if p.Protocol, err = ParseProtocol(words[1]); err != nil {
		faults = append(faults, err)
		if _, err := netip.ParseAddrPort(words[2]); err == nil {
			p.Protocol = TCP // so that the ports are not reported as errors, too
		}
	}
	if p.Source, err = parseEndpoint(words[2], p.Protocol); err != nil {
		fault("source %w", err)
	}
	if p.Destination, err = parseEndpoint(words[4], p.Protocol); err != nil {
		fault("destination %w", err)
	}
	if p.Source.IsValid() && p.Destination.IsValid() && FamilyOf(p.Source.Addr()) != p.Family() {
		fault("source %s and destination %s are of different families", p.Source.Addr(),
			p.Destination.Addr())
	}
	if err := p.parseOptions(words[5:]); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return Packet{}, fmt.Errorf("packet %q: %w", text, errors.Join(faults...))
	}
	return p, nil
}

// IsArrow reports whether the word separates source and destination in [ParsePacket].
func IsArrow(word string) bool { return word == ">" || word == "->" }

// optionsWithValue are the options of a packet that are followed by a value.
var optionsWithValue = []string{
	"dev", "uid", "gid", "mark", "ctmark", "state", "flags", "status", "icmp", "in-address",
	"src-type", "dst-type", "missing-listeners",
}

// A booleanOption is an option of a packet without a value, which sets one field.
type booleanOption struct {
	name  string
	field func(*Packet) *bool
}

// booleanOptions are the last options of a packet in the order of [Packet.String].
var booleanOptions = []booleanOption{
	{"no-reverse-path", func(p *Packet) *bool { return &p.NoReversePath }},
	{"transparent-socket", func(p *Packet) *bool { return &p.TransparentSocket }},
	{"transparent-sender", func(p *Packet) *bool { return &p.TransparentSender }},
	{"copy", func(p *Packet) *bool { return &p.Copy }},
	{"bound", func(p *Packet) *bool { return &p.Bound }},
	{"selects-interface", func(p *Packet) *bool { return &p.SelectsInterface }},
}

// packetOptions are the options of a packet whose effect depends on other options.
type packetOptions struct {
	device     string
	uid, gid   *uint32
	flags      *TCPFlags
	socketless bool
	// hasState and hasType report that the state and the ICMP type are given.
	hasState, hasType bool
}

// parseOptions parses the words after the addresses and sets defaults.
func (p *Packet) parseOptions(words []string) error {
	var faults []error
	var options packetOptions
	for len(words) > 0 {
		name, value := words[0], ""
		words = words[1:]
		if slices.Contains(optionsWithValue, name) {
			if len(words) == 0 {
				faults = append(faults, fmt.Errorf("%s has no value", name))
				break
			}
			value, words = words[0], words[1:]
		}
		if err := p.setOption(&options, name, value); err != nil {
			faults = append(faults, err)
		}
	}
	if options.flags != nil {
		p.Flags = *options.flags
	}
	p.setTypeAndState(options)
	faults = append(faults, p.checkOptions(options)...)
	if p.Hook == Output && !options.socketless {
		p.Owner = &Owner{}
		if options.uid != nil {
			*p.Owner = Owner{UID: *options.uid, GID: *options.uid}
		}
		if options.gid != nil {
			p.Owner.GID = *options.gid
		}
	}
	p.setDevice(options.device)
	if p.Protocol == TCP && options.flags == nil {
		p.Flags = defaultFlags(p.State)
	}
	return errors.Join(faults...)
}

// setOption sets one option of the packet.
func (p *Packet) setOption(o *packetOptions, name, value string) (err error) {
	number := func() *uint32 {
		n, numberErr := ParseMark(value)
		if numberErr != nil {
			err = fmt.Errorf("%s %w", name, numberErr)
		}
		return &n
	}
	switch name {
	case "dev":
		o.device = value
		if !validInterface(value) {
			err = fmt.Errorf("dev %q is not the name of an interface", value)
		}
	case "uid":
		o.uid = number()
	case "gid":
		o.gid = number()
	case "mark":
		p.Mark = *number()
	case "ctmark":
		p.ConntrackMark = *number()
	case "state":
		names := stateNames[:Untracked+1]
		i := slices.Index(names, value)
		if i < 0 {
			err = fmt.Errorf("state %q is not one of %s", value, strings.Join(names, ", "))
		}
		p.State, o.hasState = State(max(i, 0)), true
	case "flags":
		if o.flags, err = parseFlags(value); p.Protocol != TCP {
			err = errors.New("flags apply only to tcp")
		}
	case "no-socket":
		o.socketless = true
	case "kernel-socket":
		o.socketless, p.KernelSocket = true, true
	case "no-listener":
		p.NoListener = true
	case "missing-listeners":
		p.MissingListeners, err = parseListenerSet(value)
	case "reply":
		p.Reply = true
	case "status":
		p.Status, err = parseStatus(value)
	case "icmp":
		o.hasType = true
		p.ICMPType, p.ICMPCode, err = parseICMP(value)
		if p.Protocol != ICMP && p.Protocol != ICMPv6 {
			err = errors.New("icmp applies only to the protocols icmp and ipv6-icmp")
		}
	case "in-address":
		p.InAddress, err = parseInAddress(value, p.Family())
	case "src-type":
		p.SourceType, err = ParseAddrType(value)
	case "dst-type":
		p.DestinationType, err = ParseAddrType(value)
	default:
		i := slices.IndexFunc(booleanOptions, func(o booleanOption) bool { return o.name == name })
		if i < 0 {
			return fmt.Errorf("%q is not an option; want %s", name, PacketSyntax)
		}
		*booleanOptions[i].field(p) = true
	}
	return err
}

// setTypeAndState sets the ICMP type to an echo request, and the state of the packet to its
// default, unless they are given.
func (p *Packet) setTypeAndState(o packetOptions) {
	if !o.hasType {
		switch p.Protocol {
		case ICMP:
			p.ICMPType = ICMPRequests[0]
		case ICMPv6:
			p.ICMPType = ICMPv6Requests[0]
		}
	}
	if !o.hasState && (p.Protocol != TCP || o.flags != nil) {
		p.State, _ = p.defaultState()
	}
}

// checkOptions returns an error for each option that does not apply to the packet's direction,
// state or socket, and an error for a state that has no default and is not given.
func (p *Packet) checkOptions(o packetOptions) []error {
	var faults []error
	// Most conditions have the form "the option is not given, or it applies".
	require := func(ok bool, text string) {
		if !ok {
			faults = append(faults, errors.New(text))
		}
	}
	isOutgoing := p.Hook == Output
	require(isOutgoing || o.uid == nil && o.gid == nil && !o.socketless,
		"uid, gid, no-socket and kernel-socket apply only to outgoing packets: "+
			"an incoming packet has no sending socket")
	require(!isOutgoing || !p.InAddress.IsValid() && !p.NoReversePath,
		"in-address and no-reverse-path apply only to incoming packets")
	require(!p.Reply || p.State == Established || p.State == Related,
		"reply applies only to the states established and related")
	_, hasDefault := p.defaultState()
	require(o.hasState || hasDefault || p.isICMPv6Redirect(), "the state of an ICMP reply is "+
		"needed: state established reply, or state invalid if its request is not known")
	require(o.hasState || !p.isICMPv6Redirect(), "the state of an ICMPv6 redirect is needed: "+
		"state related if Linux 6.2 or later knows the connection of the packet that it quotes, "+
		"or state invalid")
	require(!p.TransparentSender || isOutgoing,
		"transparent-sender applies only to outgoing packets")
	require(!p.Copy || !isOutgoing, "copy applies only to incoming packets")
	require(!p.Bound || isOutgoing && !p.KernelSocket,
		"bound applies only to outgoing packets of a socket that is not a socket of the kernel")
	require(!p.SelectsInterface || isOutgoing && (!o.socketless || p.KernelSocket),
		"selects-interface applies only to outgoing packets of a socket")
	return faults
}

// setDevice sets the interface at the packet's hook to device or, if device is empty, to the
// interface that routing would probably select.
func (p *Packet) setDevice(device string) {
	local := p.Destination.Addr().IsLoopback() || p.Destination.Addr() == p.Source.Addr()
	switch {
	case device == "" && p.Hook == Output && local:
		device = loopback
	case device == "":
		device = "eth0"
	}
	if p.Hook == Output {
		p.OutInterface = device
	} else {
		p.InInterface = device
	}
}

// ParseProtocol parses a protocol's name or number.
func ParseProtocol(text string) (Protocol, error) {
	if p := slices.Index(protocolNames[:], text); p >= 0 && text != "" {
		return Protocol(p), nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("protocol %q is not tcp, udp, icmp, ipv6-icmp, sctp, dccp, udplite "+
			"or a number from 0 to 255", text)
	}
	return Protocol(n), nil
}

// parseEndpoint parses a source or destination: an address, and a port if the protocol has ports.
func parseEndpoint(text string, protocol Protocol) (netip.AddrPort, error) {
	if protocol.HasPorts() {
		endpoint, err := netip.ParseAddrPort(text)
		if err != nil || endpoint.Addr().Zone() != "" {
			return netip.AddrPort{}, fmt.Errorf(
				"%q is not an address and port, such as 10.1.2.3:80 or [fd00::1]:80", text)
		}
		return endpoint, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	return netip.AddrPortFrom(addr, 0), nil
}

// parseFlags parses a list of TCP flags.
func parseFlags(text string) (*TCPFlags, error) {
	var flags TCPFlags
	if text == "none" || text == "0x0" {
		return &flags, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(flagNames[:], name)
		if i < 0 {
			return nil, fmt.Errorf("flag %q is not one of %s", name,
				strings.Join(flagNames[:], ", "))
		}
		flags |= 1 << i
	}
	return &flags, nil
}

// parseStatus parses a list of conntrack status bits.
func parseStatus(text string) (Status, error) {
	var status Status
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(statusNames[:], name)
		if i < 0 {
			return 0, fmt.Errorf("status %q is not a list of %s", text,
				strings.Join(statusNames[:], ", "))
		}
		status |= 1 << i
	}
	return status, nil
}

// parseICMP parses a type, or a type and a code.
func parseICMP(text string) (icmpType, code uint8, err error) {
	first, second, hasCode := strings.Cut(text, "/")
	a, errA := strconv.ParseUint(first, 10, 8)
	b, errB := uint64(0), error(nil)
	if hasCode {
		b, errB = strconv.ParseUint(second, 10, 8)
	}
	if errA != nil || errB != nil {
		return 0, 0, fmt.Errorf(
			"icmp %q is not a type, or a type and a code, from 0 to 255, such as 8 or 3/1", text)
	}
	return uint8(a), uint8(b), nil
}

// parseInAddress parses an address of a family; "none" means the unspecified address.
func parseInAddress(text string, f Family) (netip.Addr, error) {
	if text == "none" && f == IPv6 {
		return netip.IPv6Unspecified(), nil
	}
	if text == "none" {
		return netip.IPv4Unspecified(), nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || FamilyOf(a) != f || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf(
			"in-address %q is neither an address of the packet's family nor none", text)
	}
	return a, nil
}
