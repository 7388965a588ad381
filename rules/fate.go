package rules

import "fmt"

// A Fate is all that a ruleset does to a packet.
type Fate struct {
	// Dropped tells that the packet goes no further. The other fields then say what was done to it before.
	Dropped bool
	// Redirect is the local port to which the connection is sent instead of its destination; 0 for none.
	Redirect uint16
	// DNATPort is the port to which the connection is sent at its destination, instead of the one it asked for; 0 for that.
	DNATPort uint16
	// TProxy is the port of the transparent listener that takes the packet; 0 for none.
	TProxy uint16
	// Mark and ConntrackMark are the marks of the packet and its connection afterwards.
	Mark, ConntrackMark uint32
	// Rerouted tells that a changed mark has led the packet, which was to leave, back to this host.
	Rerouted bool
	// Zone is the conntrack zone that the rules have chosen; 0 is conntrack's default.
	Zone uint16
	// Undecided names what the model has no word for, where the packet's fate depends on it; the other fields then mean nothing.
	Undecided string
}

// Captured tells whether the packet reaches a proxy instead of its destination.
func (f Fate) Captured() bool {
	return !f.Dropped && f.Undecided == "" && (f.Redirect != 0 || f.TProxy != 0)
}

// Same tells whether two fates are the same to anybody who can see the packet or its connection: a packet that is dropped leaves
// nothing behind but the mark of its connection. Where a fate is undecided nothing is the same.
func (f Fate) Same(g Fate) bool {
	switch {
	case f.Undecided != "" || g.Undecided != "":
		return false
	case f.Dropped && g.Dropped:
		return f.ConntrackMark == g.ConntrackMark
	}
	return f == g
}

// String says in words what happens to the packet.
func (f Fate) String() string {
	var text string
	switch {
	case f.Undecided != "":
		return "undecided: " + f.Undecided + " is not known to this model"
	case f.Dropped:
		text = "dropped"
	case f.Redirect != 0:
		text = fmt.Sprintf("redirected to port %d of this host", f.Redirect)
	case f.DNATPort != 0:
		text = fmt.Sprintf("goes to port %d of its destination, not captured", f.DNATPort)
	case f.TProxy != 0:
		text = fmt.Sprintf("taken by the transparent listener on port %d", f.TProxy)
	case f.Rerouted:
		text = "led back to this host, not captured"
	default:
		text = "goes to its destination, not captured"
	}
	if f.Zone != 0 {
		text += fmt.Sprintf(", conntrack zone %d", f.Zone)
	}
	if f.Mark != 0 {
		text += fmt.Sprintf(", mark 0x%x", f.Mark)
	}
	if f.ConntrackMark != 0 {
		text += fmt.Sprintf(", connection mark 0x%x", f.ConntrackMark)
	}
	return text
}
