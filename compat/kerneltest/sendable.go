package kerneltest

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// errUnsendable is wrapped by the error for a packet that the network cannot send.
var errUnsendable = errors.New("cannot be sent")

// Sendable returns nil if the network can send the packet, and otherwise an error with the reason.
func (n *Network) Sendable(p *rules.Packet) error {
	unsendable := func(reason string) error { return fmt.Errorf("%w: %s", errUnsendable, reason) }
	switch {
	case p.Hook == rules.Prerouting && (n.devices[p.InInterface] == nil || p.InInterface == "lo"):
		return unsendable("no interface " + p.InInterface)
	case p.Hook == rules.Prerouting && p.Owner != nil:
		return unsendable("arriving with a socket")
	case p.Hook == rules.Output && p.Owner == nil && (p.State != rules.Untracked ||
		p.OutInterface != outInterface(p.Destination.Addr(), 0)):
		return unsendable(
			"without a socket, but tracked or not by the interface of packets without a mark")
	case p.Hook == rules.Output && p.Owner == nil && p.Protocol == rules.ICMPv6 &&
		InitialState(p) == rules.Untracked:
		// Packets without a socket are copies that a dup statement sends. This copy would be
		// untracked even before conntrack.
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
		case p.Status != EstablishedStatus: // the packet itself makes the connection assured
			return unsendable("established with status " + p.Status.String())
		}
	case rules.Related:
		if !isICMPError(p) || p.Status != RelatedStatus {
			return unsendable("related, but no ICMP error")
		}
	case rules.Invalid:
		if InitialState(p) != rules.Invalid || p.ConntrackMark != 0 || p.Status != 0 || p.Reply {
			return unsendable(
				"invalid, but conntrack classifies it otherwise or it has a connection")
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
