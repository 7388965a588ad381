package validation

import (
	"slices"
	"time"
)

// A Check is the result of one test.
type Check struct {
	// Name identifies the check, such as "outbound, IPv4".
	Name string `json:"name"`
	// Kind is the kind of the check. Checks that differ only in the family or the address have the
	// same kind.
	Kind Kind `json:"kind"`
	// Proves reports whether the check, if it is ok, shows that rules or routes exist. It is false
	// for a check that would also be ok without rules, such as the check of a setting or of a
	// connection that must not be captured.
	Proves bool `json:"proves"`
	// Packet is the first packet of the connection, in the syntax of rules.ParsePacket. It is empty
	// for a check without a packet. Port 0 represents an ephemeral port.
	Packet string `json:"packet,omitempty"`
	// Expected is the outcome according to the parameters, and Found is the observed outcome, each
	// as a sentence without its full stop.
	Expected string `json:"expected"`
	Found    string `json:"found,omitempty"`
	Status   Status `json:"status"`
	// Reason is the cause of a failure, or the reason why the check was not done.
	Reason string `json:"reason,omitempty"`
	// Next is the remedy.
	Next string `json:"next,omitempty"`
}

// Kind is a kind of check.
type Kind string

// The kinds.
const (
	SelfCalls    Kind = "the proxy's calls"
	ZtunnelCalls Kind = "ztunnel's calls"
	Inbound      Kind = "inbound"
	Outbound     Kind = "outbound"
	DNS          Kind = "DNS"
	PolicyRoutes Kind = "policy routes"
	Settings     Kind = "settings"
	Rules        Kind = "rules and routes"
)

// Status is the status of a check.
type Status string

// The statuses.
const (
	OK         Status = "ok"
	Failed     Status = "failed"
	NotChecked Status = "not checked"
)

// A Result is the result of [Run].
type Result struct {
	Checks []Check
	// Empty is set if the parameters capture no inbound or outbound connection of the application
	// and no DNS query. The checks then prove nothing.
	Empty bool
	// Running is set if a proxy was already listening. Run then opened no listeners for captured
	// connections.
	Running bool
	// Attempts is the number of attempts until no check failed or the timeout expired.
	Attempts int
	Duration time.Duration
}

// Outcome is the summary of a result.
type Outcome string

// The outcomes.
const (
	Works           Outcome = "works"                   // all checks are ok
	WorksInPart     Outcome = "works as far as checked" // some checks were not done; see Unchecked
	Fails           Outcome = "fails"                   // a check failed
	CapturesNothing Outcome = "captures nothing"        // no check failed; see Result.Empty
	NotDecided      Outcome = "not decided"             // no check failed, and none proves anything
)

// Outcome returns the summary of the result.
func (r Result) Outcome() Outcome {
	switch {
	case r.Count(Failed) > 0:
		return Fails
	case r.Empty:
		return CapturesNothing
	case !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Proves && c.Status == OK }):
		return NotDecided
	case len(r.Unchecked()) > 0:
		return WorksInPart
	}
	return Works
}

// Unchecked returns the kinds of the checks that were not done, such as "inbound". It considers
// only checks with Proves set. If another check of the kind was done, the suffix " in part"
// follows: "DNS in part".
func (r Result) Unchecked() []string {
	var kinds []Kind
	done := map[Kind]bool{}
	for _, c := range r.Checks {
		switch {
		case !c.Proves:
		case c.Status != NotChecked:
			done[c.Kind] = true
		case !slices.Contains(kinds, c.Kind):
			kinds = append(kinds, c.Kind)
		}
	}
	var names []string
	for _, k := range kinds {
		name := string(k)
		if done[k] {
			name += " in part"
		}
		names = append(names, name)
	}
	return names
}

// Count returns the number of checks with the status.
func (r Result) Count(s Status) int {
	n := 0
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}
