package rules

import (
	"fmt"
	"net/netip"
)

// A Fate is all that a ruleset does to a packet.
type Fate struct {
	// Dropped reports that the packet goes no further. The other fields then say what was done to
	// it before.
	Dropped bool
	// Rejected says by what the sender of a dropped packet is answered, in nft's words; empty if it
	// is not.
	Rejected string
	// Redirect is the local port to which the connection is sent instead of its destination; 0 for
	// none. RedirectLast, if it is not 0, is the last of the ports of which the kernel takes one.
	Redirect, RedirectLast uint16
	// ToHost reports that a packet of a protocol without ports is sent to this host instead of its
	// destination.
	ToHost bool
	// DNATPort is the port to which the connection is sent at its destination or at DNATAddr,
	// instead of the one it asked for; 0 for that. DNATPortLast, if it is not 0, is the last of the
	// ports of which the kernel takes one.
	DNATPort, DNATPortLast uint16
	// DNATAddr is the address to which the connection is sent instead of its destination; not valid
	// for that. DNATAddrLast, if it is valid, is the last of the addresses of which the kernel
	// takes one.
	DNATAddr, DNATAddrLast netip.Addr
	// TProxy is the port of the transparent listener that takes the packet; 0 for none. TProxyAddr
	// is the address that it listens on, if the rule names one.
	TProxy     uint16
	TProxyAddr netip.Addr
	// Mark and ConntrackMark are the marks of the packet and its connection afterwards.
	Mark, ConntrackMark uint32
	// Rerouted reports that a changed mark has led the packet, which was to leave, back to this
	// host.
	Rerouted bool
	// Zone is the conntrack zone that the rules have chosen; 0 is conntrack's default. Untracked
	// reports that they keep conntrack from the packet.
	Zone      uint16
	Untracked bool
	// Helper is conntrack's helper that the rules give to the connection that the packet begins.
	Helper string
	// Undecided names what is not known, where the packet's fate depends on it; the other fields
	// then mean nothing. UnknownMarks does so where only the marks depend on it.
	Undecided, UnknownMarks string
}

// Captured reports whether the packet reaches a proxy instead of its destination.
func (f Fate) Captured() bool {
	return !f.Dropped && f.Undecided == "" && (f.Redirect != 0 || f.ToHost || f.TProxy != 0)
}

// Same reports whether two fates are the same to anybody who can see the packet or its connection:
// a packet that is dropped leaves nothing behind but the mark of its connection and the answer to
// its sender. Where a fate is undecided nothing is the same.
func (f Fate) Same(g Fate) bool {
	switch {
	case f.Undecided != "" || g.Undecided != "" || f.UnknownMarks != "" || g.UnknownMarks != "":
		return false
	case f.Dropped && g.Dropped:
		return f.ConntrackMark == g.ConntrackMark && f.Rejected == g.Rejected
	}
	return f == g
}

// String says in words what happens to the packet.
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

// disposition says where the packet goes.
func (f Fate) disposition() string {
	text := "goes to its destination, not captured"
	switch {
	case f.Dropped && f.Rejected != "":
		text = "dropped, its sender is answered: " + f.Rejected
	case f.Dropped:
		text = "dropped"
	case f.TProxy != 0:
		// A redirection changes the destination of the packet, which has its socket already.
		text = fmt.Sprintf("taken by the transparent listener on port %d", f.TProxy)
		if f.TProxyAddr.IsValid() {
			text += " of " + f.TProxyAddr.String()
		}
	case f.Redirect != 0 && f.RedirectLast != 0 && f.RedirectLast != f.Redirect:
		text = fmt.Sprintf("redirected to one of the ports %d-%d of this host", f.Redirect, f.RedirectLast)
	case f.Redirect != 0:
		text = fmt.Sprintf("redirected to port %d of this host", f.Redirect)
	case f.ToHost:
		text = "redirected to this host"
	case f.DNATAddr.IsValid():
		text = "goes to " + f.translated() + " instead of its destination, not captured"
	case f.DNATPort != 0:
		text = fmt.Sprintf("goes to port %s of its destination, not captured", portRange(f.DNATPort, f.DNATPortLast))
	case f.Rerouted:
		text = "led back to this host, not captured"
	}
	return text
}

// translated writes the address, and the port if the packet has one, to which the connection is
// sent.
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
