package token

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// claims contains claims of a JSON Web Token (RFC 7519). The token's signature is not verified
// here, because the API server verifies it.
type claims struct {
	Subject  string `json:"sub"`
	IssuedAt int64  `json:"iat"`
	Expiry   int64  `json:"exp"`
}

// claimsOf parses a token; the result is the zero value if it is not a JWT.
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

// serviceAccount returns the namespace and the name of the token's service account, or empty
// strings if the token does not belong to a service account.
func (c claims) serviceAccount() (namespace, name string) {
	account, isAccount := strings.CutPrefix(c.Subject, "system:serviceaccount:")
	namespace, name, hasName := strings.Cut(account, ":")
	if !isAccount || !hasName || namespace == "" || name == "" ||
		strings.ContainsAny(account, "/?#%") {
		return "", ""
	}
	return namespace, name
}

// issuedAt and expiry return zero times if the token does not contain them.
func (c claims) issuedAt() time.Time { return fromSeconds(c.IssuedAt) }
func (c claims) expiry() time.Time   { return fromSeconds(c.Expiry) }

// Validity returns the times of issue and expiry in a token. A time that the token does not contain
// is zero. The token is not verified.
func Validity(token string) (issued, expiry time.Time) {
	c := claimsOf(token)
	return c.issuedAt(), c.expiry()
}

func fromSeconds(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}
