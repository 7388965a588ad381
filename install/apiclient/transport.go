package apiclient

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

// A transport adds the token to each request, and trusts the certificate authority in the CA file
// at the time of the request. It is safe for concurrent use.
type transport struct {
	options Options

	mu      sync.Mutex
	ca      []byte // certificates that current trusts, in PEM
	current *http.Transport
}

var _ utilnet.RoundTripperWrapper = (*transport)(nil)

// newTransport returns a transport. It reads the CA file unless SkipTLSVerify is set.
func newTransport(o Options) (*transport, error) {
	t := &transport{options: o}
	if o.SkipTLSVerify {
		t.setTLS(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
		return t, nil
	}
	ca, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of the API server: %w", err)
	}
	if !t.trust(ca) {
		return nil, fmt.Errorf(
			"certificate authority of the API server: %s contains no certificate in PEM", o.CAFile)
	}
	return t, nil
}

// trust sets the trusted certificates. It returns false if ca contains none.
func (t *transport) trust(ca []byte) bool {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return false
	}
	t.ca = ca
	t.setTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool})
	return true
}

func (t *transport) setTLS(config *tls.Config) {
	t.current = utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: config, DialContext: t.options.Dial,
	})
}

// reload returns the transport for the current content of the CA file. A file that cannot be read
// or contains no certificate is ignored, because it may be incomplete.
func (t *transport) reload() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.options.SkipTLSVerify {
		return t.current
	}
	ca, err := os.ReadFile(t.options.CAFile)
	if err != nil || bytes.Equal(ca, t.ca) {
		return t.current
	}
	previous := t.current
	if t.trust(ca) {
		previous.CloseIdleConnections()
	}
	return t.current
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := ReadToken(t.options.TokenFile)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := t.reload().RoundTrip(r)
	if t.options.Outcome != nil {
		code := 0
		if err == nil {
			code = response.StatusCode
		}
		t.options.Outcome(token, code, err)
	}
	return response, err
}

// ReadToken returns the token in a file.
func ReadToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("service account token: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which
// [utilnet.CloseIdleConnectionsFor] finds the transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}
