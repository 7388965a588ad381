package token

import "time"

// An Origin is where a token comes from.
type Origin string

// The origins.
const (
	Requested Origin = "requested" // from the API server, with a lifetime of its own
	Projected Origin = "projected" // from the file that the kubelet writes for the agent's pod
)

// Status is what is published, and what came of the last attempt. It is a value.
type Status struct {
	// Origin is that of the token that is published; empty before the first one.
	Origin Origin
	// PublishedAt is when the kubeconfig got its content. IssuedAt and Expiry are what the token
	// says; zero if it does not.
	PublishedAt, IssuedAt, Expiry time.Time
	// Revoked says that the API server does not accept the published token any more, and that there
	// is no better one.
	Revoked bool
	// RightsKnown says that the API server has accepted a token once, and so has said whether its
	// owner may read pods.
	RightsKnown bool
	// Forbidden is the API server's answer that the token is good but its owner may not read pods,
	// or namespaces where these are needed, on one line; nil if it may.
	Forbidden error
	// Unavailable is why the last try of the published token brought no answer from the API server,
	// on one line, and UnavailableSince when that began; nil and zero if it did.
	Unavailable      error
	UnavailableSince time.Time
	// Problem is what keeps the next token from being published, on one line and without secrets;
	// nil if nothing does. It does not make the published one worse.
	Problem error
	// Published, Refused and Failed count attempts: tokens that were published, that the API server
	// did not accept, and that could not be had, tried or written.
	Published, Refused, Failed uint64
}

// patience is how long an API server that does not answer counts as one that soon will: the plugin
// goes on to ask it for a third of that, unless it is told otherwise, and the runtime calls it
// again.
const patience = 30 * time.Second

// Usable reports whether pods can be read with the published token at a time. That does not change
// while tokens are renewed in time, nor by an outage of the API server that is shorter than half a
// minute.
func (s Status) Usable(at time.Time) bool {
	away := s.Unavailable != nil && at.Sub(s.UnavailableSince) >= patience
	return s.Origin != "" && !s.Revoked && s.Forbidden == nil && !away && (s.Expiry.IsZero() || at.Before(s.Expiry))
}

// answered notes that the API server has answered a try; forbidden is nil if no right is missing.
func (s *Status) answered(forbidden error) {
	s.RightsKnown = true
	s.Forbidden, s.Unavailable, s.UnavailableSince = forbidden, nil, time.Time{}
}

// Age is how long ago the published token was issued, or published if it does not say; 0 if there
// is none.
func (s Status) Age(at time.Time) time.Duration {
	since := s.IssuedAt
	if since.IsZero() {
		since = s.PublishedAt
	}
	if since.IsZero() {
		return 0
	}
	return max(0, at.Sub(since))
}
