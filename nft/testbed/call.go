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

// DefaultTimeout is how long a call waits for its answer. Within a host an answer takes far less
// than a millisecond; what takes so much longer was dropped, or the host is busy.
const DefaultTimeout = 150 * time.Millisecond

// Place is where a call is made from.
type Place uint8

// The places.
const (
	FromPod Place = iota
	FromNeighbour
	FromMachine
)

// String names the place.
func (p Place) String() string { return [...]string{"pod", "neighbour", "machine"}[p] }

// A Call is a connection, or a datagram, to be tried.
type Call struct {
	From  Place
	Owner rules.Owner // of the calling socket; the zero value is root
	// Network is "tcp" or "udp".
	Network string
	To      netip.AddrPort
	// Local is the caller's own address and port, as far as given: the kernel chooses the rest.
	Local netip.AddrPort
	// Mark is the calling socket's mark.
	Mark uint32
	// Transparent lets Local be another host's address (IP_TRANSPARENT).
	Transparent bool
	// Timeout is how long to wait for an answer; 0 for DefaultTimeout.
	Timeout time.Duration
}

// String describes the call: "pod uid 1000 gid 1000 tcp 10.9.9.9:80".
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

// GoString is String, for tests that print what they have drawn.
func (c Call) GoString() string { return c.String() }

func (c Call) protocol() (rules.Protocol, error) {
	switch c.Network {
	case "tcp":
		return rules.TCP, nil
	case "udp":
		return rules.UDP, nil
	}
	return 0, fmt.Errorf("network %q is not tcp or udp", c.Network)
}

// Outcome is what became of a call.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota
	Refused          // nobody listens where the call arrived
	Silent           // nothing came back in time: dropped on the way
	Failed           // anything else
)

// An Answer is what a caller learns.
type Answer struct {
	Outcome Outcome
	Hop     // who answered, if somebody did
	// Upstream are those who answered the proxy, when it forwards.
	Upstream []Hop
	// Own is the caller's own address, known also without an answer.
	Own netip.AddrPort
	// Err is why nobody answered.
	Err error
}

// String says who answered: "outbound 10.9.9.9:80", with whom he asked himself, or what happened
// instead.
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

// unanswered is the answer of a call that err ended.
func unanswered(err error) Answer {
	a := Answer{Outcome: Failed, Err: err}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		a.Outcome = Refused
	// EPERM: a rule has dropped the packet before it left the caller's host.
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.EPERM):
		a.Outcome = Silent
	}
	return a
}
