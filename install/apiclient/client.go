package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Options are the options of a [Client]. Server and TokenFile are required, and CAFile unless
// SkipTLSVerify is set.
type Options struct {
	// Server is the URL of the API server.
	Server string
	// TokenFile is the path of the file with the bearer token.
	TokenFile string
	// CAFile is the path of the API server's certificate authority in PEM.
	CAFile string
	// SkipTLSVerify accepts any certificate of the API server. CAFile is then not read.
	SkipTLSVerify bool
	// UserAgent is the User-Agent header of the requests.
	UserAgent string
	// Dial, unless nil, replaces [net.Dialer.DialContext].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Outcome, unless nil, is called with the token and the outcome of each attempt to send a
	// request. The code is 0 if there is no reply.
	Outcome func(token string, code int, err error)
}

// A Client sends requests to the API server. It is safe for concurrent use.
type Client struct {
	config *rest.Config
	base   string
	http   *http.Client
}

// New returns a client. It reads CAFile, and does not connect.
func New(o Options) (*Client, error) {
	base, _, err := rest.DefaultServerURL(o.Server, "", schema.GroupVersion{Version: "v1"}, true)
	if err != nil {
		return nil, fmt.Errorf("create a client of the API server: %w", err)
	}
	t, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	c := &Client{
		config: &rest.Config{Host: o.Server, UserAgent: o.UserAgent, Transport: t},
		base:   strings.TrimSuffix(base.String(), "/"),
	}
	if c.http, err = rest.HTTPClientFor(c.config); err != nil {
		return nil, fmt.Errorf("create a client of the API server: %w", err)
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// REST returns a client for resources of the core API group. It shares the connections of c.
func (c *Client) REST(content rest.ContentConfig) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.config)
	config.APIPath, config.ContentConfig = "/api", content
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("create a client of the API server: %w", err)
	}
	return client, nil
}

// Do sends a request for a path and returns the reply, whatever its status code. It does not follow
// redirects. A body other than nil is sent as JSON, with [http.MethodPatch] as a merge patch. The
// caller must close the body of the reply, and limit the request with ctx.
func (c *Client) Do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	request, err := c.newRequest(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return c.http.Do(request)
}

// Metadata sends a GET request to list or watch a collection. The reply contains only the metadata
// of the objects. As with [Client.Do], the caller must close the body of the reply and limit the
// request with ctx.
func (c *Client) Metadata(
	ctx context.Context, path string, query url.Values,
) (*http.Response, error) {
	request, err := c.newRequest(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	request.URL.RawQuery = query.Encode()
	kind := "PartialObjectMetadataList"
	if query.Get("watch") != "" {
		kind = "PartialObjectMetadata"
	}
	request.Header.Set("Accept", "application/json;as="+kind+";g=meta.k8s.io;v=v1")
	return c.http.Do(request)
}

func (c *Client) newRequest(
	ctx context.Context, method, path string, body any,
) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	switch {
	case method == http.MethodPatch:
		request.Header.Set("Content-Type", "application/merge-patch+json")
	case body != nil:
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}
