package credential

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// A transport sends requests to the API server with the token, and trusts the authority, that the
// files hold at the time of the request. client-go would use an old token for up to a minute, and
// an old authority for five. It is safe for concurrent use.
type transport struct {
	tokenFile, caFile string
	// seen is called with the token and the outcome of each request; the code is 0 if there is no
	// answer.
	seen func(token string, code int, err error)

	mu      sync.Mutex
	ca      []byte // what current trusts
	current *http.Transport
}

var _ utilnet.RoundTripperWrapper = (*transport)(nil)

// newTransport reads the CA file.
func newTransport(tokenFile, caFile string, seen func(token string, code int, err error)) (*transport, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of the API server: %w", err)
	}
	t := &transport{tokenFile: tokenFile, caFile: caFile, seen: seen}
	if !t.trust(ca) {
		return nil, fmt.Errorf("certificate authority of the API server: %s has no certificate in PEM", caFile)
	}
	return t, nil
}

// trust makes the transport trust the certificates in ca. It returns false if there are none.
func (t *transport) trust(ca []byte) bool {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return false
	}
	t.ca = ca
	t.current = utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
	})
	return true
}

// renewed returns the transport for the present content of the CA file. A file that cannot be read,
// or holds no certificate, changes nothing: it may be half written.
func (t *transport) renewed() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	ca, err := os.ReadFile(t.caFile)
	if err != nil || bytes.Equal(ca, t.ca) {
		return t.current
	}
	old := t.current
	if t.trust(ca) {
		old.CloseIdleConnections()
	}
	return t.current
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := readToken(t.tokenFile)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := t.renewed().RoundTrip(r)
	code := 0
	if err == nil {
		code = response.StatusCode
	}
	t.seen(token, code, err)
	return response, err
}

// readToken returns the token in a file.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("service account token: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], by which idle connections are
// closed.
func (t *transport) WrappedRoundTripper() http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}
