package source

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// TokenClaims contains claims of a JSON Web Token (RFC 7519), such as the token of a service
// account. A claim that the token does not contain is zero.
type TokenClaims struct {
	Subject          string
	IssuedAt, Expiry time.Time
}

// ParseToken returns the claims of a token, or the zero value if it is not a JWT. It does not
// verify the signature, because the API server verifies it.
func ParseToken(token string) TokenClaims {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return TokenClaims{}
	}
	var c struct {
		Subject  string `json:"sub"`
		IssuedAt int64  `json:"iat"`
		Expiry   int64  `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return TokenClaims{}
	}
	return TokenClaims{c.Subject, fromSeconds(c.IssuedAt), fromSeconds(c.Expiry)}
}

func fromSeconds(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}
