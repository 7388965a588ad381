package token

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/source"
)

// issueTime bounds a request for a token.
const issueTime = 10 * time.Second

// errNotPermitted is in the error of a request that the API server forbids, or does not know.
var errNotPermitted = errors.New("requesting a token is not permitted")

// issue asks the API server for a token of the account that the given one is for. It is bound to no
// pod: a token that died with the agent's would be worth nothing just when the plugin needs it.
func (o *Options) issue(ctx context.Context, with string) (string, error) {
	namespace, name := claimsOf(with).account()
	if name == "" {
		return "", fmt.Errorf("%w: the token of the agent is of no service account", errNotPermitted)
	}
	transport, err := o.transport()
	if err != nil {
		return "", err
	}
	defer transport.CloseIdleConnections()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": int64(o.Lifetime.Seconds())},
	})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, issueTime)
	defer cancel()
	at := o.Server + "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts/" + url.PathEscape(name) + "/token"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header = http.Header{
		"Authorization": {"Bearer " + with}, "Content-Type": {"application/json"}, "Accept": {"application/json"},
		"User-Agent": {"sluice-node"},
	}
	// The transport and not a http.Client, which would follow redirects and take the token along.
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	return readIssued(answer)
}

// readIssued reads the answer to a request for a token.
func readIssued(answer *http.Response) (string, error) {
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("the answer is cut short: %w", err)
	}
	var issued struct {
		Message string
		Status  json.RawMessage
	}
	// What is no JSON has no token either.
	_ = json.Unmarshal(text, &issued)
	var status struct{ Token string }
	switch code := answer.StatusCode; {
	case code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return "", fmt.Errorf("%w: the API server answers %d: %s", errNotPermitted, code, quote(issued.Message))
	case code == http.StatusUnauthorized:
		return "", source.WithKind(source.Unauthorized, errors.New("the API server answers 401: it does not accept the projected token"))
	case code != http.StatusCreated && code != http.StatusOK:
		return "", fmt.Errorf("the API server answers %d: %s", code, quote(issued.Message))
	}
	if json.Unmarshal(issued.Status, &status) != nil || !wellFormed(status.Token) {
		return "", errors.New("the API server's answer has no token")
	}
	return status.Token, nil
}

// transport prepares a connection to the API server.
func (o *Options) transport() (*http.Transport, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.SkipTLSVerify}
	if !o.SkipTLSVerify {
		authority, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		trust.RootCAs.AppendCertsFromPEM(authority)
	}
	return &http.Transport{DialContext: o.Dial, TLSClientConfig: trust, DisableKeepAlives: true, TLSHandshakeTimeout: issueTime / 2}, nil
}

// wellFormed reports whether a token has only characters that a header may have.
func wellFormed(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' })
}

// quote quotes foreign text so that it fits into a line.
func quote(text string) string {
	const longest = 300
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return strconv.Quote(text)
}
