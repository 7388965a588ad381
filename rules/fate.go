package rules

import (
	"fmt"
	"net/netip"
)

// A Fate is the outcome of the rules for a packet.
type Fate struct {
	// Dropped reports that the packet is dropped. The other fields are then the effects before
	// that.
	Dropped bool
	// Rejected is the reply to the sender of a dropped packet in nft's syntax; empty if there is
	// none.
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
	// TProxy is the port of the transparent listener that receives the packet; 0 for none.
	// TProxyAddr is its address, if the rule specifies one.
	TProxy     uint16
	TProxyAddr netip.Addr
	// Mark and ConntrackMark are the resulting marks of the packet and its connection.
	Mark, ConntrackMark uint32
	// Rerouted reports that a changed mark routed an outgoing packet back to this host.
	Rerouted bool
	// Zone is the conntrack zone assigned by the rules; 0 is the default zone. Untracked reports
	// that they disabled conntrack for the packet.
	Zone      uint16
	Untracked bool
	// Helper is the conntrack helper assigned to the connection that the packet begins.
	Helper string
	// Undecided names the unknown on which the outcome depends. If it is set, the other fields are
	// invalid.
	// UnknownMarks names the unknown on which only the marks depend.
	Undecided, UnknownMarks string
}

// Captured reports whether the packet reaches a proxy instead of its destination.
func (f Fate) Captured() bool {
	return !f.Dropped && f.Undecided == "" && (f.Redirect != 0 || f.ToHost || f.TProxy != 0)
}

// Same reports whether two outcomes have equal effects. For a dropped packet, only the conntrack
// mark and the reply are compared. An undecided outcome is equal to nothing.
func (f Fate) Same(g Fate) bool {
	switch {
	case f.Undecided != "" || g.Undecided != "" || f.UnknownMarks != "" || g.UnknownMarks != "":
		return false
	case f.Dropped && g.Dropped:
		return f.ConntrackMark == g.ConntrackMark && f.Rejected == g.Rejected
	}
	return f == g
}

// String returns a description of the outcome.
func (f Fate) String() string {
	if f.Undecided != "" {
		return "undecided: " + f.Undecided + " is not known to this model"
	}
	text := f.disposition()
	if f.Untracked {
		text += ", not tracked"
	}
	if f.Zone != 0 {
		text += fmt.Sprintf(", conntrack zone %d", f.Zone)
	}
	if f.Helper != "" {
		text += ", conntrack helper " + f.Helper
	}
	if f.Mark != 0 {
		text += fmt.Sprintf(", mark 0x%x", f.Mark)
	}
	if f.ConntrackMark != 0 {
		text += fmt.Sprintf(", connection mark 0x%x", f.ConntrackMark)
	}
	if f.UnknownMarks != "" {
		text += ", marks undecided: " + f.UnknownMarks
	}
	return text
}

// disposition returns a description of the destination.
func (f Fate) disposition() string {
	text := "goes to its destination, not captured"
	switch {
	case f.Dropped && f.Rejected != "":
		text = "dropped, its sender is answered: " + f.Rejected
	case f.Dropped:
		text = "dropped"
	case f.TProxy != 0:
		// A redirection has no effect on a packet that is already assigned to a socket.
		text = fmt.Sprintf("taken by the transparent listener on port %d", f.TProxy)
		if f.TProxyAddr.IsValid() {
			text += " of " + f.TProxyAddr.String()
		}
	case f.Redirect != 0 && f.RedirectLast != 0 && f.RedirectLast != f.Redirect:
		text = fmt.Sprintf("redirected to one of the ports %d-%d of this host", f.Redirect,
			f.RedirectLast)
	case f.Redirect != 0:
		text = fmt.Sprintf("redirected to port %d of this host", f.Redirect)
	case f.ToHost:
		text = "redirected to this host"
	case f.DNATAddr.IsValid():
		text = "goes to " + f.translated() + " instead of its destination, not captured"
	case f.DNATPort != 0:
		text = fmt.Sprintf("goes to port %s of its destination, not captured",
			portRange(f.DNATPort, f.DNATPortLast))
	case f.Rerouted:
		text = "led back to this host, not captured"
	}
	return text
}

// translated returns the translated address, and the port if the packet has ports.
func (f Fate) translated() string {
	text := f.DNATAddr.String()
	if f.DNATAddr.Is6() && f.DNATPort != 0 {
		text = "[" + text + "]"
	}
	if f.DNATAddrLast.IsValid() && f.DNATAddrLast != f.DNATAddr {
		text += "-" + f.DNATAddrLast.String()
	}
	if f.DNATPort != 0 {
		text += ":" + portRange(f.DNATPort, f.DNATPortLast)
	}
	return text
}

func portRange(first, last uint16) string {
	if last == 0 {
		last = first
	}
	return PortRange{First: first, Last: last}.String()
}
