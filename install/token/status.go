package token

import "time"

// An Origin is the origin of a token.
type Origin string

// The origins.
const (
	Requested Origin = "requested" // from the API server, with a separate lifetime
	Projected Origin = "projected" // from the file that the kubelet writes for the agent's pod
)

// Status is the state of the published token and of the last attempt. It is a value.
type Status struct {
	// Origin is the origin of the published token; empty before the first one.
	Origin Origin
	// PublishedAt is the time when the kubeconfig was written. IssuedAt and Expiry are taken from
	// the token; zero if it does not contain them.
	PublishedAt, IssuedAt, Expiry time.Time
	// Revoked reports that the API server rejects the published token, and that there is no other.
	Revoked bool
	// RightsKnown reports that the API server has accepted a token, and the permissions of its
	// owner are therefore known.
	RightsKnown bool
	// Forbidden is the API server's error, on one line, if the owner of the valid token may not
	// read pods, or namespaces if required; otherwise nil.
	Forbidden error
	// Unavailable is the reason, on one line, why the API server did not reply to the last check,
	// and UnavailableSince the start of this problem; nil and zero if it replied.
	Unavailable      error
	UnavailableSince time.Time
	// Problem is the reason, on one line and without secrets, why the next token cannot be
	// published; nil if there is none. It does not affect the published token.
	Problem error
	// Published, Refused and Failed are the numbers of tokens that were published, that the API
	// server rejected, and that could not be obtained, checked or written.
	Published, Refused, Failed uint64
}

// outageTolerance is the time for which the published token counts as usable although the API
// server does not reply: the plugin by default retries for a third of it, and the runtime calls the
// plugin again.
const outageTolerance = 30 * time.Second

// Usable reports whether pods can be read with the published token at a time. It remains true while
// tokens are renewed in time, and during an outage of the API server of less than half a minute.
func (s Status) Usable(at time.Time) bool {
	unavailable := s.Unavailable != nil && at.Sub(s.UnavailableSince) >= outageTolerance
	return s.Origin != "" && !s.Revoked && s.Forbidden == nil && !unavailable && !s.expired(at)
}

// expired reports whether the lifetime of the published token is over. A requested token is issued
// when it is published: its lifetime is counted from then on, because the node's clock may be set,
// or differ from the API server's.
func (s Status) expired(at time.Time) bool {
	end := s.Expiry
	if s.Origin == Requested && !s.IssuedAt.IsZero() && !s.PublishedAt.IsZero() && !end.IsZero() {
		end = s.PublishedAt.Add(s.Expiry.Sub(s.IssuedAt))
	}
	return !end.IsZero() && !at.Before(end)
}

// answered records a reply of the API server to a check; forbidden is nil if no permission is
// missing.
func (s *Status) answered(forbidden error) {
	s.RightsKnown = true
	s.Forbidden, s.Unavailable, s.UnavailableSince = forbidden, nil, time.Time{}
}

// Age returns the age of the published token since it was issued, or published if that is unknown;
// 0 if there is none.
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
