package kerneltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// An Observation describes what the kernel did with a packet.
type Observation struct {
	// Entries contains the logged positions of the packet, in order.
	Entries []LogEntry
	// Answer is the kernel's answer to the packet: "tcp reset", or the protocol, type and code of
	// an ICMP error. It is empty if the kernel did not answer.
	Answer string
	// Err is the reason why the packet could not be sent as described.
	Err error
}

// lastEntry returns the last entry at a position, or nil.
func (o *Observation) lastEntry(position string) *LogEntry {
	for i := range slices.Backward(o.Entries) {
		if o.Entries[i].Position == position {
			return &o.Entries[i]
		}
	}
	return nil
}

// Observe sends the packets one after the other and returns an observation of each packet. Before a
// packet in a state other than new, it creates the connection.
func (n *Network) Observe(packets []rules.Packet) ([]Observation, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	// The kernel does not reorder packets that are sent from one processor.
	var cpus unix.CPUSet
	cpus.Set(someCPU(&all))
	if err := unix.SchedSetaffinity(0, &cpus); err != nil {
		return nil, err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()

	observations := make([]Observation, len(packets))
	first := n.token + 1
	for i := range packets {
		n.token++
		err := n.send(&packets[i], n.token)
		if errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("the send buffer is full: the kernel has not freed earlier"+
				" packets: %s: %w", packets[i], err)
		}
		observations[i].Err = err
	}
	entries, err := n.logEntries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.answer == "tcp reset" {
			e.token = first + uint32(slices.IndexFunc(packets, func(p rules.Packet) bool {
				return p.Protocol == rules.TCP && p.Source == e.To
			}))
		}
		i := int(e.token - first)
		if i < 0 || i >= len(packets) {
			continue
		}
		if e.answer != "" {
			if e.Position == "output begin" {
				observations[i].Answer = e.answer
			}
			continue
		}
		// Ignore packets that only return the token, such as an echo reply. The source of the packet
		// may be translated at the end of postrouting.
		isTranslated := e.Position == "postrouting end" && e.To.Addr() != packets[i].Source.Addr()
		if p := &packets[i]; e.Protocol == p.Protocol && (e.From == p.Source || isTranslated) {
			observations[i].Entries = append(observations[i].Entries, e)
		}
	}
	for i := range packets {
		if observations[i].Err == nil {
			observations[i].Err = observations[i].check(&packets[i])
		}
	}
	return observations, nil
}

// someCPU returns a random processor of the set.
func someCPU(set *unix.CPUSet) int {
	skip := rand.IntN(set.Count())
	for i := 0; ; i++ {
		if !set.IsSet(i) {
			continue
		}
		if skip == 0 {
			return i
		}
		skip--
	}
}

// errUnsendable is wrapped by the error for a packet that the network cannot send.
var errUnsendable = errors.New("cannot be sent")

// check returns an error if the packet differed from its description.
func (o *Observation) check(p *rules.Packet) error {
	if len(o.Entries) == 0 {
		return fmt.Errorf("%w: it did not enter a hook", errUnsendable)
	}
	s := o.Entries[0]
	want := LogEntry{
		Position: p.Hook.String() + " begin", In: p.InInterface, Out: p.OutInterface,
		Protocol: p.Protocol,
		From:     p.Source, To: p.Destination, Mark: p.Mark,
	}
	if s.Position != want.Position || s.In != want.In || s.Out != want.Out ||
		s.Protocol != want.Protocol ||
		s.From != want.From || s.To != want.To || s.Mark != want.Mark {
		return fmt.Errorf("%w: it entered as %v", errUnsendable, s)
	}
	if p.Hook == rules.Output && ((s.Owner == nil) != (p.Owner == nil) || s.Owner != nil &&
		*s.Owner != *p.Owner) {
		return fmt.Errorf("%w: it has another socket: %v", errUnsendable, s)
	}
	return nil
}

// logEntries returns the log entries of the packets that were sent. It repeats the sentinel,
// because a busy machine may lose or delay it.
func (n *Network) logEntries() (entries []LogEntry, err error) {
	n.token++
	for begin := time.Now(); ; {
		if err := n.sentinel("eth0"); err != nil {
			return nil, err
		}
		more, err := n.readUntil(n.token, time.Second)
		entries = append(entries, more...)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) > time.Minute {
			return entries, err
		}
	}
}

// sentinel sends the packet that ends an observation. It contains the current token.
func (n *Network) sentinel(device string) error {
	p := rules.Packet{
		Protocol: rules.UDP, Source: netip.AddrPortFrom(peerAddr, 1),
		Destination: netip.AddrPortFrom(netip.MustParseAddr("10.244.1.5"), sentinelPort),
	}
	return n.devices[device].writeFrame(encode(&p, n.token, nil), 0, ordinary)
}

// send sends a packet, and creates the connection that its state requires.
func (n *Network) send(p *rules.Packet, token uint32) error {
	if err := n.Sendable(p); err != nil {
		return err
	}
	var inner []byte
	e, ok := connectionOf(p)
	if p.State == rules.Related {
		// The error refers to a packet of a connection of the receiver.
		n.connections++
		e, inner = reportedConnection(p, n.connections)
	}
	if ok {
		if err := n.conntrack.create(e); err != nil {
			return err
		}
	}
	packet := encode(p, token, inner)
	if p.Hook == rules.Prerouting {
		return n.devices[p.InInterface].writeFrame(packet, p.Mark, ordinary)
	}
	if p.Owner == nil {
		return n.devices["eth0"].writeFrame(packet, p.Mark, withoutSocket)
	}
	if err := n.writeRaw(p, packet); err != nil {
		return fmt.Errorf("%w: %w", errUnsendable, err)
	}
	return nil
}

// connectionOf returns the connection of the packet, and reports whether it must exist before the
// packet.
func connectionOf(p *rules.Packet) (entry, bool) {
	own := tuple{p.Protocol, p.Source, p.Destination}
	if p.Reply {
		own = own.reverse()
	}
	return entry{own, own.reverse(), p.Status, p.ConntrackMark},
		p.State == rules.Established || p.State == rules.Related || p.State == rules.New &&
			p.Status != 0
}

// reportedConnection returns the connection that an ICMP error reports, and a packet of the
// connection from the receiver of the error to another host: a request if the error belongs to the
// reply direction, and otherwise a reply.
func reportedConnection(p *rules.Packet, number uint32) (entry, []byte) {
	to := netip.MustParseAddr("203.0.113.7")
	if p.Destination.Addr().Is6() {
		to = netip.MustParseAddr("2001:db8:113::7")
	}
	reported := rules.Packet{
		Protocol:    rules.UDP,
		Source:      netip.AddrPortFrom(p.Destination.Addr(), uint16(1024+number%60000)),
		Destination: netip.AddrPortFrom(to, 7),
	}
	original := tuple{rules.UDP, reported.Source, reported.Destination}
	if !p.Reply {
		original = original.reverse()
	}
	return entry{original, original.reverse(), p.Status, p.ConntrackMark}, encode(&reported, 0, nil)
}

// Sendable returns an error with the reason why the network cannot send the packet, or nil.
func (n *Network) Sendable(p *rules.Packet) error {
	unsendable := func(reason string) error { return fmt.Errorf("%w: %s", errUnsendable, reason) }
	switch {
	case p.Hook == rules.Prerouting && (n.devices[p.InInterface] == nil || p.InInterface == "lo"):
		return unsendable("no interface " + p.InInterface)
	case p.Hook == rules.Prerouting && p.Owner != nil:
		return unsendable("arriving with a socket")
	case p.Hook == rules.Output && p.Owner == nil && (p.State != rules.Untracked ||
		p.OutInterface != outInterface(p.Destination.Addr(), 0)):
		return unsendable("without a socket, but tracked or not by the interface of packets without a mark")
	case p.Hook == rules.Output && p.Owner == nil && p.Protocol == rules.ICMPv6 &&
		InitialState(p) == rules.Untracked:
		// Such packets are sent as copies, by a dup statement. The copy would be untracked even
		// before conntrack.
		return unsendable("without a socket, and of a kind that conntrack does not track")
	case p.Hook == rules.Output && n.devices[p.OutInterface] == nil:
		return unsendable("no interface " + p.OutInterface)
	case p.Hook == rules.Output && !p.Bound && p.OutInterface != outInterfaceOf(p):
		return unsendable("by an interface that routing does not choose")
	case p.Hook != rules.Output && p.Hook != rules.Prerouting:
		return unsendable("at hook " + p.Hook.String())
	}
	if p.Source == p.Destination && p.Status != 0 {
		return unsendable(
			"of a connection with itself, whose directions conntrack does not tell apart")
	}
	hasPorts := p.Protocol == rules.TCP || p.Protocol == rules.UDP
	switch p.State {
	case rules.New:
		switch {
		case p.Reply || p.Status&^rules.StatusConfirmed != 0:
			return unsendable("a new packet that is a reply or has a status other than confirmed")
		case InitialState(p) != rules.New:
			return unsendable("conntrack does not begin a connection with it")
		case p.Status == 0 && p.ConntrackMark != 0:
			return unsendable("a new connection with a mark")
		case p.Status != 0 && (!hasPorts || p.Protocol == rules.TCP && p.Flags != rules.SYN):
			return unsendable("new on a confirmed connection, but not UDP or TCP's SYN")
		}
	case rules.Established:
		switch {
		case !hasPorts || p.Protocol == rules.TCP && p.Flags&^(rules.PSH|rules.URG) != rules.ACK:
			return unsendable("established, but not UDP or TCP's ACK")
		case p.Status != EstablishedStatus: // the packet makes the connection assured
			return unsendable("established with status " + p.Status.String())
		}
	case rules.Related:
		if !isICMPError(p) || p.Status != RelatedStatus {
			return unsendable("related, but no ICMP error")
		}
	case rules.Invalid:
		if InitialState(p) != rules.Invalid || p.ConntrackMark != 0 || p.Status != 0 || p.Reply {
			return unsendable("invalid, but conntrack classifies it otherwise or it has a connection")
		}
	case rules.Untracked:
		if !isUntrackedICMPv6(p) && (p.Hook != rules.Output || p.Owner != nil) ||
			p.ConntrackMark != 0 || p.Status != 0 || p.Reply {
			return unsendable("untracked, but arriving or with a socket")
		}
	default:
		return unsendable("state " + p.State.String())
	}
	return nil
}

// RelatedStatus is the status of the connections to which the ICMP errors of the network refer.
const RelatedStatus = rules.StatusConfirmed | rules.StatusSeenReply

// EstablishedStatus is the status of the established connections that the network can create.
const EstablishedStatus = rules.StatusConfirmed | rules.StatusSeenReply | rules.StatusAssured

func isICMPError(p *rules.Packet) bool {
	switch p.Protocol {
	case rules.ICMP:
		return p.ICMPType == 3 || p.ICMPType == 11
	case rules.ICMPv6:
		return p.ICMPType >= 1 && p.ICMPType <= 4
	}
	return false
}

// isUntrackedICMPv6 reports whether conntrack does not track the packet
// (nf_conntrack_icmpv6_error in net/netfilter/nf_conntrack_proto_icmpv6.c).
func isUntrackedICMPv6(p *rules.Packet) bool {
	return p.Protocol == rules.ICMPv6 && (p.ICMPType >= 130 && p.ICMPType <= 137 ||
		p.ICMPType == 143)
}

// InitialState returns the state that conntrack assigns to a packet without an existing connection.
// It returns Untracked also for packets that the network does not send.
func InitialState(p *rules.Packet) rules.State {
	switch p.Protocol {
	case rules.TCP:
		// See tcp_valid_flags and tcp_conntracks in net/netfilter/nf_conntrack_proto_tcp.c.
		switch flags := p.Flags &^ (rules.PSH | rules.ECN | rules.CWR); flags {
		case rules.SYN, rules.SYN | rules.URG, rules.ACK, rules.ACK | rules.URG:
			return rules.New
		}
		return rules.Invalid
	case rules.UDP:
		return rules.New
	case rules.ICMP:
		switch p.ICMPType {
		case 8, 13, 15, 17: // echo, timestamp, information and address mask requests
			return rules.New
		case 0: // echo reply
			return rules.Invalid
		}
		return rules.Untracked
	case rules.ICMPv6:
		switch p.ICMPType {
		case 128:
			return rules.New
		case 129:
			return rules.Invalid
		}
		return rules.Untracked
	}
	if slices.Contains(transports, p.Protocol) {
		return rules.New
	}
	return rules.Untracked
}

// transports contains numbers of protocols that the kernel does not implement.
var transports = []rules.Protocol{253, 254}
