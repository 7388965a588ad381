package validation

import "time"

// A Check is one thing that was tried.
type Check struct {
	// Name says what: "outbound, IPv4".
	Name string `json:"name"`
	// Packet is the first packet of the connection, in the syntax of rules.ParsePacket; empty for a check without one. A port 0
	// stands for one that the kernel would have chosen.
	Packet string `json:"packet,omitempty"`
	// Expected is what the parameters say, Found what happened; each is a sentence without its full stop.
	Expected string `json:"expected"`
	Found    string `json:"found,omitempty"`
	Status   Status `json:"status"`
	// Reason says more about a check that failed, and why one was not done.
	Reason string `json:"reason,omitempty"`
	// Next is what to do about it.
	Next string `json:"next,omitempty"`
}

// Status is how a check ended.
type Status string

// The statuses.
const (
	OK         Status = "ok"
	Failed     Status = "failed"
	NotChecked Status = "not checked"
)

// A Result is what [Run] has found.
type Result struct {
	Checks []Check
	// Empty tells that the parameters capture no connection of the application's, neither in nor out, and no DNS: there is nothing
	// to prove, whatever the checks say.
	Empty bool
	// Running tells that a proxy listened already, so that no listener was opened beside it.
	Running bool
	// Attempts is how often all was tried before nothing failed or the time was over.
	Attempts int
	Duration time.Duration
}

// Outcome sums up a result.
type Outcome string

// The outcomes.
const (
	Works           Outcome = "works"
	Fails           Outcome = "fails"            // a check failed
	CapturesNothing Outcome = "captures nothing" // nothing failed, but the parameters capture nothing
	NotDecided      Outcome = "not decided"      // nothing failed, but nothing could be checked either
)

// Outcome sums up the result.
func (r Result) Outcome() Outcome {
	switch {
	case r.Count(Failed) > 0:
		return Fails
	case r.Empty:
		return CapturesNothing
	case r.Count(OK) == 0:
		return NotDecided
	}
	return Works
}

// Count returns how many checks have the status.
func (r Result) Count(s Status) int {
	n := 0
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}
