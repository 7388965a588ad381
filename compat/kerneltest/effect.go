package kerneltest

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// An Effect contains the observable properties of the outcome of a packet.
type Effect struct {
	// Dropped is set if the ruleset dropped the packet. If it is set, the fields after Answer are
	// not set.
	Dropped bool
	// Answer is the answer to the sender of a dropped packet; see [Observation].
	Answer string
	// To and Mark are the destination and the mark after all rules.
	To   netip.AddrPort
	Mark uint32
	// From is the source address of a packet that leaves the pod, after a possible translation at
	// postrouting. It is invalid for other packets.
	From netip.Addr
	// TProxy is the owner of the transparent listener to which a rule has assigned the packet. It
	// is valid only if TProxied is set.
	TProxy    rules.Owner
	TProxied  bool
	Untracked bool
	// Rerouted is set if the packet was routed to lo instead of leaving the pod.
	Rerouted bool
	// LeftLoopback is set if the packet left the pod instead of being sent over lo.
	LeftLoopback bool
	// HasConnection reports whether the following fields are valid.
	HasConnection bool
	ConntrackMark uint32
	Zone          uint16
	// Original is the original destination of the connection. It is set only for packets of TCP and
	// UDP in the direction of the connection's first packet.
	Original netip.AddrPort
}

// String returns the effect in one line, without From and Original.
func (e Effect) String() string {
	if e.Dropped && e.Answer != "" {
		return "dropped, answered with " + e.Answer
	}
	if e.Dropped {
		return "dropped"
	}
	text := fmt.Sprintf("to %s mark 0x%x", e.To, e.Mark)
	if e.TProxied {
		text += fmt.Sprintf(" with the listener of %d:%d", e.TProxy.UID, e.TProxy.GID)
	}
	if e.Rerouted {
		text += " rerouted"
	}
	if e.LeftLoopback {
		text += " away from lo"
	}
	if e.Untracked {
		text += " untracked"
	}
	if e.HasConnection {
		text += fmt.Sprintf(" connection mark 0x%x zone %d", e.ConntrackMark, e.Zone)
	}
	return text
}

// Effect returns the observed effect on the packet p. It returns an error if the packet left a
// hook, but did not enter the next hook.
func (o *Observation) Effect(p *rules.Packet) (Effect, error) {
	// The last hook is postrouting for packets that leave the pod. For other packets, including
	// packets that leave by lo, it is prerouting.
	last := o.lastEntry("prerouting end")
	if p.Hook == rules.Output {
		afterOutput := o.lastEntry("output end")
		atPostrouting := o.lastEntry("postrouting")
		switch {
		case afterOutput == nil:
			return Effect{Dropped: true, Answer: o.Answer}, nil
		case atPostrouting == nil:
			return Effect{}, fmt.Errorf("%w: the packet left output, but did not enter postrouting",
				errUnsendable)
		case atPostrouting.Out != "lo":
			last = o.lastEntry("postrouting end")
		case o.lastEntry("prerouting begin") == nil:
			return Effect{}, fmt.Errorf("%w: the packet left by lo, but did not arrive", errUnsendable)
		}
	}
	if last == nil {
		return Effect{Dropped: true, Answer: o.Answer}, nil
	}
	result := Effect{To: last.To, Mark: last.Mark, Untracked: last.State == rules.Untracked}
	if last.Position == "postrouting end" {
		result.From = last.From.Addr()
	}
	if last.Owner != nil && last.Position == "prerouting end" {
		result.TProxied, result.TProxy = true, *last.Owner
	}
	result.Rerouted = p.Hook == rules.Output && p.OutInterface != "lo" &&
		last.Position == "prerouting end"
	result.LeftLoopback = p.Hook == rules.Output && p.OutInterface == "lo" &&
		last.Position == "postrouting end"
	if c := last.Connection; c != nil {
		result.HasConnection, result.ConntrackMark, result.Zone = true, c.Mark, c.Zone
		if isOriginal(p) {
			result.Original = c.Original
		}
	}
	return result, nil
}
