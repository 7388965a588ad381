package token

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

func TestClaims(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	c := source.ParseToken(
		apiservertest.JWT("system:serviceaccount:mesh:sluice", at, at.Add(time.Hour)))
	if namespace, name := serviceAccount(c.Subject); namespace != "mesh" || name != "sluice" ||
		!c.IssuedAt.Equal(at) || !c.Expiry.Equal(at.Add(time.Hour)) {
		t.Errorf("claims %+v, want service account mesh/sluice, issued at %s and valid for an hour", c, at)
	}
	for _, text := range []string{"", "opaque", "a.b.c", "a.e30.c"} {
		c := source.ParseToken(text)
		if namespace, name := serviceAccount(c.Subject); namespace+name != "" ||
			!c.IssuedAt.IsZero() || !c.Expiry.IsZero() {
			t.Errorf("token %q has claims %+v, want none", text, c)
		}
	}
}

// TestLifetimeOfARequestedTokenDoesNotDependOnTheClock covers a node whose clock is two days
// behind the API server's, or ahead of it.
func TestLifetimeOfARequestedTokenDoesNotDependOnTheClock(t *testing.T) {
	now := time.Now()
	for _, ahead := range []time.Duration{-48 * time.Hour, 0, 48 * time.Hour} {
		issued := now.Add(-ahead)
		s := Status{
			Origin: Requested, PublishedAt: now, IssuedAt: issued, Expiry: issued.Add(24 * time.Hour),
		}
		if !s.Usable(now.Add(23*time.Hour)) || s.Usable(now.Add(25*time.Hour)) {
			t.Errorf("the node's clock is ahead by %s: the token is not usable for 24 h after its publication", ahead)
		}
	}
}

// FuzzClaims parses arbitrary tokens: the namespace and the name of the service account are both
// valid in the path of a URL, or both empty.
func FuzzClaims(f *testing.F) {
	f.Add(apiservertest.JWT("system:serviceaccount:mesh:sluice", time.Unix(1, 0), time.Unix(2, 0)))
	f.Add(apiservertest.JWT("system:serviceaccount:../x", time.Unix(-1, 0), time.Unix(0, 0)))
	f.Add("a.e30.c")
	f.Fuzz(func(t *testing.T, text string) {
		namespace, name := serviceAccount(source.ParseToken(text).Subject)
		if (namespace == "") != (name == "") || strings.ContainsAny(namespace+name, "/?#%") {
			t.Errorf("namespace %q, name %q, want both valid or both empty", namespace, name)
		}
	})
}

// FuzzReadTokenResponse parses arbitrary responses to a request for a token: the result is a token
// that is valid in a header, or an error of one line and limited length.
func FuzzReadTokenResponse(f *testing.F) {
	f.Add(201, `{"status":{"token":"a.b.c"}}`)
	f.Add(403, `{"message":"no\n"}`)
	f.Add(200, `{"status":{"token":"a b"}}`)
	f.Add(200, `{"status":7}`)
	f.Fuzz(func(t *testing.T, code int, body string) {
		recorder := httptest.NewRecorder()
		recorder.Body.WriteString(body)
		answer := recorder.Result()
		answer.StatusCode = code
		token, err := readTokenResponse(answer)
		if (token == "") != (err != nil) || token != "" && (!isWellFormed(token) ||
			code != http.StatusOK && code != http.StatusCreated) {
			t.Errorf("token %q, error %v, want either a valid token or an error", token, err)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 2000) {
			t.Errorf("error of several lines, or too long: %q", err)
		}
	})
}
