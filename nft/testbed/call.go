package testbed

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// DefaultTimeout is the time that a call waits for its answer. Within a host an answer takes less
// than a millisecond unless the host is busy.
const DefaultTimeout = 150 * time.Millisecond

// Caller is the origin of a call.
type Caller uint8

// The callers.
const (
	FromPod      Caller = iota
	FromNeighbor        // outside the pod
	FromMachine         // the virtual machine behind the pod's second interface
)

// String returns the name of the caller.
func (c Caller) String() string { return [...]string{"pod", "neighbor", "machine"}[c] }

// A Call is a connection or a datagram to a destination.
type Call struct {
	From  Caller
	Owner rules.Owner // of the calling socket in the pod; sockets of other callers belong to root
	// Network is "tcp" or "udp".
	Network string
	To      netip.AddrPort
	// Local is the caller's address and port. The kernel chooses unset parts.
	Local netip.AddrPort
	// Mark is the mark of the calling socket.
	Mark uint32
	// Transparent allows a non-local address in Local (IP_TRANSPARENT).
	Transparent bool
	// Timeout is the time to wait for an answer. 0 means DefaultTimeout.
	Timeout time.Duration
}

// String describes the call, such as "pod uid 1000 gid 1000 tcp 10.9.9.9:80".
func (c Call) String() string {
	text := c.From.String()
	if c.From == FromPod {
		text += fmt.Sprintf(" uid %d gid %d", c.Owner.UID, c.Owner.GID)
	}
	text += " " + c.Network + " "
	if c.Local.IsValid() {
		text += c.Local.String() + " > "
	}
	text += c.To.String()
	if c.Mark != 0 {
		text += fmt.Sprintf(" mark %#x", c.Mark)
	}
	return text
}

// GoString returns String, for tests that print generated calls.
func (c Call) GoString() string { return c.String() }

// protocol returns the protocol of Network.
func (c Call) protocol() (rules.Protocol, error) {
	switch c.Network {
	case "tcp":
		return rules.TCP, nil
	case "udp":
		return rules.UDP, nil
	}
	return 0, fmt.Errorf("network %q is not tcp or udp", c.Network)
}

// Outcome is the kind of result of a call.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota
	Refused          // no server listens on the port
	Silent           // no answer before the timeout, or a rule dropped the request (EPERM)
	Failed           // another error
)

// An Answer is the result of a call.
type Answer struct {
	Outcome Outcome
	Hop     // the server that answered
	// Upstream lists the servers that answered a forwarding proxy.
	Upstream []Hop
	// Source is the caller's address, which is set even without an answer.
	Source netip.AddrPort
	// Err is the reason for a missing answer.
	Err error
}

// String returns the servers and destinations if the call was answered, such as
// "outbound 10.9.9.9:80, outside 10.9.9.9:80". Otherwise it returns the outcome.
func (a Answer) String() string {
	switch a.Outcome {
	case Answered:
		text := a.Hop.String()
		for _, h := range a.Upstream {
			text += ", " + h.String()
		}
		return text
	case Refused:
		return "refused"
	case Silent:
		return "no answer"
	}
	return fmt.Sprintf("failed: %v", a.Err)
}

// answerOfError returns the answer of a call that failed with err.
func answerOfError(err error) Answer {
	a := Answer{Outcome: Failed, Err: err}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		a.Outcome = Refused
	// EPERM: a rule of the caller's namespace has dropped the packet.
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.EPERM):
		a.Outcome = Silent
	}
	return a
}
