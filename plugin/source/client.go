package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// client sends requests to one API server as one user. It is safe for concurrent use.
type client struct {
	server      *url.URL
	kubeconfig  string
	credentials credentials
	transport   *http.Transport
}

// maxFileSize is the maximum size in bytes of a kubeconfig and of the files that it names.
// Kubernetes limits a Secret or ConfigMap, from which such files come, to 1 MiB.
const maxFileSize = 1 << 20

// newClient reads a kubeconfig and the files that it names. It does not connect.
func newClient(o *Options) (*client, error) {
	if o.Kubeconfig == "" {
		return nil, errors.New("no kubeconfig is configured")
	}
	data, err := file.ReadAtMost(o.Kubeconfig, maxFileSize)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c, err := parseClient(data, o)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, singleLine{err})
	}
	return c, nil
}

// parseClient returns the client for the content of a kubeconfig.
func parseClient(data []byte, o *Options) (*client, error) {
	cluster, user, err := parseKubeconfig(data)
	if err != nil {
		return nil, err
	}
	c := &client{kubeconfig: o.Kubeconfig}
	if c.server, err = cluster.endpoint(); err != nil {
		return nil, err
	}
	dir := filepath.Dir(o.Kubeconfig)
	if c.credentials, err = newCredentials(&user, dir); err != nil {
		return nil, err
	}
	c.transport, err = newTransport(&cluster, dir, o)
	if err != nil {
		return nil, err
	}
	c.transport.TLSClientConfig.Certificates = c.credentials.certificates
	return c, nil
}

// newTransport returns a transport for connections to the API server of a cluster.
func newTransport(c *cluster, dir string, o *Options) (*http.Transport, error) {
	authority, err := dataOrFile(c.CertificateAuthorityData, dir, c.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("its cluster's certificate-authority: %w", err)
	}
	trust := &tls.Config{
		ServerName: c.TLSServerName, InsecureSkipVerify: c.InsecureSkipTLSVerify,
		MinVersion: tls.VersionTLS12,
	}
	if len(authority) > 0 {
		if c.InsecureSkipTLSVerify {
			return nil, errors.New("its cluster has both a certificate-authority and" +
				" insecure-skip-tls-verify: remove one of them")
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("its cluster's certificate-authority contains no PEM certificate")
		}
	}
	proxy, err := c.proxy()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:     o.Dial,
		TLSClientConfig: trust,
		// Half of the request timeout, so that a server that does not complete the handshake is
		// detected earlier than a server that answers slowly.
		TLSHandshakeTimeout: o.RequestTimeout / 2,
		// A pod is small, and without compression a small answer cannot expand to a large object.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        time.Minute,
	}
	if transport.DialContext == nil {
		transport.DialContext = (&net.Dialer{Timeout: o.RequestTimeout / 2}).DialContext
	}
	if proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
	}
	return transport, nil
}

// get sends one request and returns the JSON of an answer with status 200. A requestError describes
// every other result.
func (c *client) get(ctx context.Context, p path) ([]byte, *requestError) {
	start := time.Now()
	body, failure := c.exchange(ctx, p)
	if failure != nil && failure.timedOut {
		duration := time.Since(start).Round(time.Millisecond)
		failure.err = fmt.Errorf("%w within %v", failure.err, duration)
	}
	return body, failure
}

// exchange sends one request and reads the answer.
func (c *client) exchange(ctx context.Context, p path) ([]byte, *requestError) {
	r := (&http.Request{
		Method: http.MethodGet,
		URL:    c.server.JoinPath(p.elements()...),
		Header: http.Header{"Accept": {"application/json"}, "User-Agent": {"sluice-cni"}},
	}).WithContext(ctx)
	token, err := c.credentials.authorize(r)
	if err != nil {
		return nil, &requestError{
			kind: Misconfigured, final: true,
			err: fmt.Errorf("kubeconfig %s: %w", c.kubeconfig, err),
		}
	}
	// Do not use http.Client, which would follow redirects and send the token to other servers.
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, c.transportError(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, c.statusError(answer, p, token)
	}
	return readObject(answer)
}
