package token

import "time"

// An Origin is the origin of a token.
type Origin string

// The origins.
const (
	Requested Origin = "requested" // from the API server, with a separate lifetime
	Projected Origin = "projected" // from the file that the kubelet writes for the agent's pod
)

// Status is the state of the published token and of the last attempt to publish one.
type Status struct {
	// Origin is the origin of the published token; empty before the first publication.
	Origin Origin
	// PublishedAt is the time when the token was first published.
	PublishedAt time.Time
	// IssuedAt and Expiry are the times in the token; zero if it does not contain them.
	IssuedAt, Expiry time.Time
	// Revoked is set if the API server rejects the published token, until a token is published
	// again.
	Revoked bool
	// PermissionsKnown is set once the API server has accepted a token: the permissions of the
	// token's owner are then known.
	PermissionsKnown bool
	// Forbidden is the API server's error, on one line, if the owner of the valid token may not
	// read pods, or namespaces if required; otherwise nil.
	Forbidden error
	// Unavailable is the error of the last check, on one line, if the API server neither accepted
	// nor rejected the token, for example because it did not answer; otherwise nil.
	Unavailable error
	// UnavailableSince is the time since which Unavailable is set; zero if it is nil.
	UnavailableSince time.Time
	// Problem is the reason, on one line and without secrets, why the next token cannot be
	// published, or nil. It does not affect the published token.
	Problem error
	// ProblemSince is the time since which there is a problem; zero without one.
	ProblemSince time.Time
	// Published is the number of publications, also of the same token with a changed kubeconfig.
	Published uint64
	// Rejected is the number of attempts at publication that failed because the API server rejected
	// a token.
	Rejected uint64
	// Failed is the number of attempts that failed for another reason: a token could not be
	// obtained, checked or written.
	Failed uint64
}

// outageTolerance is the time for which the published token counts as usable although the API
// server does not answer. Such short outages do not fail ADD: by default the plugin retries for a
// third of this time, and the runtime calls the plugin again.
const outageTolerance = 30 * time.Second

// Usable reports whether pods can be read with the published token at a time. It remains true while
// tokens are renewed in time, and during an outage of the API server of less than half a minute.
func (s Status) Usable(at time.Time) bool {
	unavailable := s.Unavailable != nil && at.Sub(s.UnavailableSince) >= outageTolerance
	return s.Origin != "" && !s.Revoked && s.Forbidden == nil && !unavailable && !s.isExpired(at)
}

// isExpired reports whether the lifetime of the published token is over. The lifetime of a
// requested token is counted from the publication, which immediately follows the request, because
// the node's clock may differ from the API server's.
func (s Status) isExpired(at time.Time) bool {
	end := s.Expiry
	if s.Origin == Requested && !s.IssuedAt.IsZero() && !s.PublishedAt.IsZero() && !end.IsZero() {
		end = s.PublishedAt.Add(s.Expiry.Sub(s.IssuedAt))
	}
	return !end.IsZero() && !at.Before(end)
}

// HasLastingProblem reports whether a problem has existed for at least outageTolerance. A shorter
// problem may be part of an outage that is tolerated.
func (s Status) HasLastingProblem(at time.Time) bool {
	return s.Problem != nil && at.Sub(s.ProblemSince) >= outageTolerance
}

// setProblem records a problem that occurred at a time, or clears the problem if problem is nil.
func (s *Status) setProblem(problem error, at time.Time) {
	switch {
	case problem == nil:
		s.ProblemSince = time.Time{}
	case s.Problem == nil:
		s.ProblemSince = at
	}
	s.Problem = problem
}

// setAvailable records that the API server answered a check. forbidden is nil if no permission is
// missing.
func (s *Status) setAvailable(forbidden error) {
	s.PermissionsKnown = true
	s.Forbidden, s.Unavailable, s.UnavailableSince = forbidden, nil, time.Time{}
}

// Age returns the time since the published token was issued or, if this is unknown, published; 0 if
// there is no published token.
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
