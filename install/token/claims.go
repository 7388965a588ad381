package token

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// claims are what a token says of itself (RFC 7519). Nothing is verified: the API server does that.
type claims struct {
	Subject  string `json:"sub"`
	IssuedAt int64  `json:"iat"`
	Expiry   int64  `json:"exp"`
}

// claimsOf reads a token; the zero value if it is no JWT.
func claimsOf(token string) claims {
	var c claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return claims{}
	}
	return c
}

// account returns namespace and name of the service account that the token is for; empty if it is
// for none.
func (c claims) account() (namespace, name string) {
	rest, found := strings.CutPrefix(c.Subject, "system:serviceaccount:")
	namespace, name, named := strings.Cut(rest, ":")
	if !found || !named || namespace == "" || name == "" || strings.ContainsAny(rest, "/?#%") {
		return "", ""
	}
	return namespace, name
}

// issued and expiry are zero where the token does not say.
func (c claims) issued() time.Time { return seconds(c.IssuedAt) }
func (c claims) expiry() time.Time { return seconds(c.Expiry) }

// Validity returns from when to when a token says that it is valid; zero times if it does not say.
// Nothing is verified.
func Validity(token string) (issued, expiry time.Time) {
	c := claimsOf(token)
	return c.issued(), c.expiry()
}

func seconds(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}
