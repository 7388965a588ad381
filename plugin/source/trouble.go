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
)

// maxStatus is how much is read of an answer that is no object.
const maxStatus = 64 << 10

// trouble is what came of a try that brought no answer.
type trouble struct {
	kind Kind
	err  error
	// final says that to try again would bring the same.
	final bool
	// late says that an answer was waited for in vain; how long is added to the error.
	late bool
	// after is how long the server wants to be left alone; zero if it does not say.
	after time.Duration
}

// unreached explains why there was no answer at all.
func (c *client) unreached(err error) *trouble {
	var certificate *tls.CertificateVerificationError
	var connection *net.OpError
	switch {
	case errors.As(err, &certificate):
		return &trouble{kind: Misconfigured, final: true, err: fmt.Errorf("kubeconfig %s does not fit the server: %w", c.kubeconfig, err)}
	case errors.As(err, &connection) && connection.Op == "dial" && connection.Timeout():
		return &trouble{kind: Unavailable, late: true, err: errors.New("no connection")}
	case errors.As(err, &connection) && connection.Op == "dial":
		return &trouble{kind: Unavailable, err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &trouble{kind: Unavailable, late: true, err: errors.New("no answer")}
	case errors.Is(err, io.EOF):
		return &trouble{kind: Unavailable, err: errors.New("it closed the connection without an answer")}
	}
	return &trouble{kind: Unavailable, err: err}
}

// refused explains an answer that is not 200.
func (c *client) refused(answer *http.Response, p path, token string) *trouble {
	s := readStatus(answer)
	err := fmt.Errorf("it answers %d%s", answer.StatusCode, s.quoted())
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized:
		err = fmt.Errorf("it answers 401: it does not accept %s of kubeconfig %s", c.credentials.describe(token), c.kubeconfig)
		return &trouble{kind: Unauthorized, final: true, err: err}
	case code == http.StatusForbidden:
		return &trouble{kind: Forbidden, final: true, err: err}
	case code == http.StatusNotFound && s.Details.Kind == p.resource && s.Details.Name == p.name:
		return &trouble{kind: NotFound, final: true, err: errors.New("it answers 404: there is none")}
	case code == http.StatusNotFound:
		// Not from an API server, or not about the object: a load balancer says this of a server that it cannot reach.
		return &trouble{kind: Unavailable, err: err}
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		after := retryAfter(answer.Header.Get("Retry-After"))
		if after > 0 {
			err = fmt.Errorf("%w, and wants to be asked again after %v", err, after.Round(time.Millisecond))
		}
		return &trouble{kind: Unavailable, err: err, after: after}
	}
	return &trouble{kind: Unavailable, final: true, err: err}
}

// status is what an API server answers when there is nothing else to answer (metav1.Status).
type status struct {
	Message string `json:"message"`
	Details struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"details"`
}

// readStatus reads an answer other than 200; the zero value if it has no status.
func readStatus(answer *http.Response) status {
	var s status
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxStatus))
	if err != nil || json.Unmarshal(body, &s) != nil {
		return status{}
	}
	return s
}

// quoted returns the server's own words, to follow others.
func (s *status) quoted() string {
	if s.Message == "" {
		return ""
	}
	return ": " + shortQuote(s.Message)
}

// shortQuote quotes foreign text so that it fits into a line.
func shortQuote(words string) string { return text.Quote(words, 300) }

// line is an error whose text fits into a line. Those of net/http and crypto quote what a server sent.
type line struct{ err error }

func (l line) Error() string { return text.Printable(text.Cut(l.err.Error(), 600)) }

func (l line) Unwrap() error { return l.err }

// longestAfter bounds what a server may want: far beyond every budget, and short enough that a pause can be added to it.
const longestAfter = 1 << 31 * time.Second

// retryAfter reads the header Retry-After (RFC 9110, 10.2.3), at most longestAfter; zero if it does not say how long.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longestAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, time.Until(at)), longestAfter)
	}
	return 0
}
