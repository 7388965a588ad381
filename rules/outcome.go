package rules

import (
	"fmt"
	"net/netip"
)

// An Outcome is what the rules do to a packet.
type Outcome struct {
	// Dropped reports that the packet is dropped. The other fields are then the effects of the
	// rules before the drop, except for the connection mark of a packet that begins a connection:
	// the connection ends with the drop, so that the mark has no effect.
	Dropped bool
	// Rejected is the action that replies to the sender of a dropped packet, in nft's syntax, such
	// as "reject with tcp reset"; empty if there is no reply. The name of an ICMP error depends
	// on the packet's family.
	Rejected string
	// Redirect is the local port to which the connection is redirected; 0 for none. If RedirectLast
	// is not 0, the kernel selects a port from Redirect to RedirectLast.
	Redirect, RedirectLast uint16
	// ToHost reports that a packet of a protocol without ports is redirected to this host.
	ToHost bool
	// DNATPort is the translated destination port; 0 if it is unchanged. If DNATPortLast is not 0,
	// the kernel selects a port from DNATPort to DNATPortLast.
	DNATPort, DNATPortLast uint16
	// DNATAddr is the translated destination address; invalid if it is unchanged. If DNATAddrLast
	// is valid, the kernel selects an address from DNATAddr to DNATAddrLast.
	DNATAddr, DNATAddrLast netip.Addr
	// SNATAddr is the translated source address of a packet that leaves; invalid if it is
	// unchanged.
	SNATAddr netip.Addr
	// SNAT names the translation if the kernel selects the source address.
	SNAT string
	// TProxy is the port of the transparent listener to which the packet is assigned; 0 for none.
	// TProxyAddr is the address of the listener, if the rule specifies one.
	TProxy     uint16
	TProxyAddr netip.Addr
	// Mark and ConntrackMark are the resulting marks of the packet and its connection.
	Mark, ConntrackMark uint32
	// Rerouted reports that a changed mark routed an outgoing packet back to this host.
	Rerouted bool
	// LeavesLoopback reports that a changed mark routed a packet from lo to another interface.
	LeavesLoopback bool
	// Zone is the conntrack zone assigned by the rules; 0 is the default zone.
	Zone uint16
	// Untracked reports that the rules disabled conntrack for the packet.
	Untracked bool
	// Helper is the conntrack helper assigned to the connection that the packet begins.
	Helper string
	// Undecided names the unknown condition or expression on which the outcome depends. If it is
	// set, the other fields are invalid.
	Undecided string
	// UnknownMarks names the unknown condition or expression on which the marks, but no other
	// fields, depend.
	UnknownMarks string
}

// Captured reports whether the packet reaches a proxy instead of its destination.
func (o Outcome) Captured() bool {
	return !o.Dropped && o.Undecided == "" && (o.Redirect != 0 || o.ToHost || o.TProxy != 0)
}

// HasListener reports whether the packet is assigned to a transparent listener.
func (o Outcome) HasListener() bool { return !o.Dropped && o.Undecided == "" && o.TProxy != 0 }

// Same reports whether two outcomes have equal effects. If both drop the packet, only the conntrack
// mark and the reply are compared. An outcome that is undecided or has unknown marks is not the
// same as any other.
func (o Outcome) Same(p Outcome) bool {
	switch {
	case o.Undecided != "" || p.Undecided != "" || o.UnknownMarks != "" || p.UnknownMarks != "":
		return false
	case o.Dropped && p.Dropped:
		return o.ConntrackMark == p.ConntrackMark && o.Rejected == p.Rejected
	}
	return o == p
}

// String returns a description of the outcome.
func (o Outcome) String() string {
	if o.Undecided != "" {
		return "undecided: " + o.Undecided + " is not known to this model"
	}
	text := o.disposition()
	addIf := func(applies bool, format string, args ...any) {
		if applies {
			text += fmt.Sprintf(", "+format, args...)
		}
	}
	addIf(o.SNATAddr.IsValid(), "source %s", o.SNATAddr)
	addIf(!o.SNATAddr.IsValid() && o.SNAT != "", "another source (%s)", o.SNAT)
	addIf(o.LeavesLoopback, "leaves through an interface other than lo")
	addIf(o.Untracked, "not tracked")
	addIf(o.Zone != 0, "conntrack zone %d", o.Zone)
	addIf(o.Helper != "", "conntrack helper %s", o.Helper)
	addIf(o.Mark != 0, "mark 0x%x", o.Mark)
	addIf(o.ConntrackMark != 0, "connection mark 0x%x", o.ConntrackMark)
	addIf(o.UnknownMarks != "", "marks undecided: %s", o.UnknownMarks)
	return text
}

// disposition describes where the packet goes.
func (o Outcome) disposition() string {
	text := "goes to its destination, not captured"
	switch {
	case o.Dropped && o.Rejected != "":
		text = "dropped, with a reply to its sender: " + o.Rejected
	case o.Dropped:
		text = "dropped"
	case o.TProxy != 0:
		// A redirection has no effect on a packet that is already assigned to a socket.
		text = fmt.Sprintf("assigned to the transparent listener on port %d", o.TProxy)
		if o.TProxyAddr.IsValid() {
			text += " of " + o.TProxyAddr.String()
		}
	case o.Redirect != 0 && o.RedirectLast != 0 && o.RedirectLast != o.Redirect:
		text = fmt.Sprintf("redirected to one of the ports %d-%d of this host", o.Redirect,
			o.RedirectLast)
	case o.Redirect != 0:
		text = fmt.Sprintf("redirected to port %d of this host", o.Redirect)
	case o.ToHost:
		text = "redirected to this host"
	case o.DNATAddr.IsValid():
		to := DNATTo{o.DNATAddr, o.DNATAddrLast, o.DNATPort, o.DNATPortLast}
		text = "goes to " + to.destination() + " instead of its destination, not captured"
	case o.DNATPort != 0:
		text = fmt.Sprintf("goes to port %s of its destination, not captured",
			portRange(o.DNATPort, o.DNATPortLast))
	case o.Rerouted:
		text = "routed back to this host, not captured"
	}
	return text
}
