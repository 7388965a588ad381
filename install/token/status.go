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
	// PublishedAt is when the kubeconfig got its content. IssuedAt and Expiry are what the token says; zero if it does not.
	PublishedAt, IssuedAt, Expiry time.Time
	// Revoked says that the API server does not accept the published token any more, and that there is no better one.
	Revoked bool
	// Problem is what is wrong now, on one line and without secrets; nil if all is well. A problem with the next token does not make
	// the published one worse.
	Problem error
	// Published, Refused and Failed count attempts: tokens that were published, that the API server did not accept, and that could not
	// be had, tried or written.
	Published, Refused, Failed uint64
}

// Usable tells whether the published token can be used at a time. That does not change while tokens are renewed in time.
func (s Status) Usable(at time.Time) bool {
	return s.Origin != "" && !s.Revoked && (s.Expiry.IsZero() || at.Before(s.Expiry))
}

// Age is how long ago the published token was issued, or published if it does not say; 0 if there is none.
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
