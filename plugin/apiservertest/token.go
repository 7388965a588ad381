package apiservertest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// SetToken sets the only accepted bearer token.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.extra = token, nil
}

// AddToken adds an accepted bearer token.
func (s *Server) AddToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra = append(s.extra, token)
}

// Token returns the bearer token of SetToken, or initially a fixed one.
func (s *Server) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

func (s *Server) accepts(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return token == s.token || slices.Contains(s.extra, token)
}

// Issue sets the function that issues tokens of a service account (TokenRequest) for the requested
// lifetime. Nil, the default, forbids these requests. An issued token is not accepted until
// [Server.AddToken] is called.
func (s *Server) Issue(issue func(seconds int64) (token string, expiry time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issue = issue
}

// issueToken answers a request for a token.
func (s *Server) issueToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	issue := s.issue
	s.mu.Unlock()
	if issue == nil {
		text := newStatus(http.StatusForbidden,
			"serviceaccounts is forbidden: cannot create resource serviceaccounts/token", "", "")
		write(w, http.StatusForbidden, text)
		return
	}
	var request struct {
		APIVersion, Kind string
		Spec             struct{ ExpirationSeconds int64 }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil ||
		request.Kind != "TokenRequest" ||
		request.APIVersion != "authentication.k8s.io/v1" {
		write(w, http.StatusBadRequest, newStatus(http.StatusBadRequest, "no TokenRequest", "", ""))
		return
	}
	token, expiry := issue(request.Spec.ExpirationSeconds)
	write(w, http.StatusCreated, inJSON(map[string]any{
		"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
		"status": map[string]any{
			"token": token, "expirationTimestamp": expiry.UTC().Format(time.RFC3339),
		},
	}))
}

// JWT returns a service account token with an invalid signature.
func JWT(subject string, issued, expiry time.Time) string {
	encodePart := func(value any) string {
		return base64.RawURLEncoding.EncodeToString(inJSON(value))
	}
	claims := map[string]any{"sub": subject, "iat": issued.Unix(), "exp": expiry.Unix()}
	return encodePart(map[string]any{"alg": "RS256"}) + "." + encodePart(claims) + "." +
		encodePart("signature")
}
