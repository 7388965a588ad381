package source

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// maxStatus is the maximum number of bytes that are read from the body of an error.
const maxStatus = 64 << 10

// A requestError describes why a request failed.
type requestError struct {
	kind Kind
	err  error
	// final is set if a repeated request would fail too.
	final bool
	// timedOut is set after a timeout. client.get then adds the duration to the error.
	timedOut bool
	// retryAfter is the delay that the server has requested before a retry, or zero.
	retryAfter time.Duration
}

// unavailable returns an error of the kind [Unavailable] after which the request is repeated.
func unavailable(format string, args ...any) *requestError {
	return &requestError{kind: Unavailable, err: fmt.Errorf(format, args...)}
}

// transportError describes a request without an answer.
func (c *client) transportError(err error) *requestError {
	var certificate *tls.CertificateVerificationError
	var connection *net.OpError
	switch {
	case errors.As(err, &certificate):
		return &requestError{
			kind: Misconfigured, final: true,
			err: fmt.Errorf("verify the server's certificate with kubeconfig %s: %w",
				c.kubeconfig, err),
		}
	case errors.As(err, &connection) && connection.Op == "dial" && connection.Timeout():
		return &requestError{kind: Unavailable, timedOut: true, err: errors.New("no connection")}
	case errors.As(err, &connection) && connection.Op == "dial":
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &requestError{kind: Unavailable, timedOut: true, err: errors.New("no answer")}
	case errors.Is(err, io.EOF):
		return unavailable("it closed the connection without an answer")
	}
	return &requestError{kind: Unavailable, err: err}
}

// statusError describes an answer with a status other than 200.
func (c *client) statusError(answer *http.Response, p path, token string) *requestError {
	s := readStatus(answer)
	err := fmt.Errorf("it answers %d%s", answer.StatusCode, s.messageSuffix())
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized:
		err = fmt.Errorf("it answers 401: it does not accept %s of kubeconfig %s",
			c.credentials.describe(token), c.kubeconfig)
		return &requestError{kind: Unauthorized, final: true, err: err}
	case code == http.StatusForbidden:
		return &requestError{kind: Forbidden, final: true, err: err}
	case code == http.StatusNotFound && s.Details.Kind == p.resource && s.Details.Name == p.name:
		return &requestError{
			kind: NotFound, final: true, err: errors.New("it answers 404: not found"),
		}
	case code == http.StatusNotFound:
		// The answer is not from an API server, or not about the object: a load balancer may answer
		// 404 if it cannot reach a server.
		return &requestError{kind: Unavailable, err: err}
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		after := parseRetryAfter(answer.Header.Get("Retry-After"))
		if after > 0 {
			err = fmt.Errorf("%w, and requests a retry after %v", err,
				after.Round(time.Millisecond))
		}
		return &requestError{kind: Unavailable, err: err, retryAfter: after}
	}
	return &requestError{kind: Unavailable, final: true, err: err}
}

// status is the body of an error of an API server (metav1.Status).
type status struct {
	Message string `json:"message"`
	Details struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"details"`
}

// readStatus reads the status of an answer. It returns the zero value if there is none.
func readStatus(answer *http.Response) status {
	var s status
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxStatus))
	if err != nil || json.Unmarshal(body, &s) != nil {
		return status{}
	}
	return s
}

// messageSuffix returns the server's message, to be appended to an error.
func (s *status) messageSuffix() string {
	if s.Message == "" {
		return ""
	}
	return ": " + shortQuote(s.Message)
}

// shortQuote quotes untrusted text so that it fits into a line.
func shortQuote(s string) string { return text.Quote(s, 300) }

// singleLine is an error whose text is printed on one line. Errors of net/http and crypto quote
// data from a server.
type singleLine struct{ err error }

func (e singleLine) Error() string { return rules.Printable(text.Truncate(e.err.Error(), 600)) }

func (e singleLine) Unwrap() error { return e.err }

// maxRetryAfter limits the header Retry-After. It is longer than every timeout, and small enough
// that adding a backoff does not overflow.
const maxRetryAfter = 1 << 31 * time.Second

// parseRetryAfter parses the header Retry-After (RFC 9110, 10.2.3). It returns at most
// maxRetryAfter, and zero for an invalid header.
func parseRetryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, time.Until(at)), maxRetryAfter)
	}
	return 0
}
