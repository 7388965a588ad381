package kerneltest

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// errUnsendable is wrapped by the error for a packet that the network cannot send.
var errUnsendable = errors.New("cannot be sent")

// CheckSendable returns nil if the network can send the packet, and otherwise an error with the
// reason.
func (n *Network) CheckSendable(p *rules.Packet) error {
	unsendable := func(reason string) error { return fmt.Errorf("%w: %s", errUnsendable, reason) }
	switch {
	case p.Hook == rules.Prerouting && (n.devices[p.InInterface] == nil || p.InInterface == "lo"):
		return unsendable("arriving by interface " + p.InInterface)
	case p.Hook == rules.Prerouting && p.Owner != nil:
		return unsendable("arriving with a socket")
	// A packet without a socket is a copy that a dup statement sends. The copy is untracked when it
	// enters, and routed as if its mark were 0.
	case p.Hook == rules.Output && p.Owner == nil && (p.State != rules.Untracked ||
		p.OutInterface != outInterface(p.Destination.Addr(), 0)):
		return unsendable("without a socket, but not untracked, or not by the interface " +
			outInterface(p.Destination.Addr(), 0) + " of packets without a mark")
	case p.Hook == rules.Output && p.Owner == nil && isUntrackedOrUnknownICMPv6(p):
		return unsendable("without a socket, and an ICMPv6 message that conntrack does not track, " +
			"or whose state the network does not know")
	case p.Hook == rules.Output && p.Owner == nil && p.TransparentSender:
		return unsendable("of a closed transparent socket")
	case p.Hook == rules.Output && n.devices[p.OutInterface] == nil:
		return unsendable("no interface " + p.OutInterface)
	case p.Hook == rules.Output && !p.Bound && !p.SelectsInterface && p.OutInterface != outInterfaceOf(p):
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
			return unsendable("new without a confirmed connection, but with a conntrack mark")
		case p.Status != 0 && (!hasPorts || p.Protocol == rules.TCP && p.Flags != rules.SYN):
			return unsendable("new on a confirmed connection, but not UDP or TCP's SYN")
		}
	case rules.Established:
		switch {
		case !hasPorts || p.Protocol == rules.TCP && p.Flags&^(rules.PSH|rules.URG) != rules.ACK:
			return unsendable("established, but not UDP or TCP's ACK")
		case p.Status != EstablishedStatus:
			return unsendable("established with status " + p.Status.String() + " instead of " +
				EstablishedStatus.String())
		}
	case rules.Related:
		if !isICMPError(p) || p.Status != RelatedStatus {
			return unsendable("related, but not an ICMP error that the network sends, with status " +
				RelatedStatus.String())
		}
	case rules.Invalid:
		if InitialState(p) != rules.Invalid || p.ConntrackMark != 0 || p.Status != 0 || p.Reply {
			return unsendable(
				"invalid, but conntrack classifies it otherwise, or it has properties of a connection")
		}
	case rules.Untracked:
		switch {
		case p.ConntrackMark != 0 || p.Status != 0 || p.Reply:
			return unsendable("untracked, but with properties of a connection")
		case !isUntrackedICMPv6(p) && (p.Hook != rules.Output || p.Owner != nil):
			return unsendable("untracked, but neither a copy without a socket nor an ICMPv6 message " +
				"that conntrack does not track")
		}
	default:
		return unsendable("state " + p.State.String())
	}
	return nil
}

// RelatedStatus is the status of the connections to which the ICMP errors of the network refer.
const RelatedStatus = rules.StatusConfirmed | rules.StatusSeenReply

// EstablishedStatus is the status of the established connections that the network can create. It
// contains StatusAssured, because the packet itself makes conntrack set it before the rules run.
const EstablishedStatus = rules.StatusConfirmed | rules.StatusSeenReply | rules.StatusAssured

// isICMPError reports whether the packet is an ICMP error of a kind that the network sends.
func isICMPError(p *rules.Packet) bool {
	switch p.Protocol {
	case rules.ICMP: // destination unreachable, time exceeded
		return p.ICMPType == 3 || p.ICMPType == 11
	case rules.ICMPv6: // the same, packet too big, parameter problem
		return p.ICMPType >= 1 && p.ICMPType <= 4
	}
	return false
}

// isUntrackedOrUnknownICMPv6 reports whether conntrack leaves the packet, an ICMPv6 message,
// untracked, or [InitialState] does not know its state. If such a packet is untracked, the model
// assumes that conntrack left it untracked, and not that it was untracked when it entered.
func isUntrackedOrUnknownICMPv6(p *rules.Packet) bool {
	return p.Protocol == rules.ICMPv6 && InitialState(p) == rules.Untracked
}
