package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-mesh/sluice/install/apiclient"
)

// A Client sends requests to the API server. It is safe for concurrent use.
type Client struct {
	api    *apiclient.Client
	series *series
}

// New returns a client that sends its requests with api.
func New(api *apiclient.Client) *Client {
	return &Client{api: api, series: newSeries()}
}

// Close closes idle connections, including those of api. Pending repetitions of events are
// discarded.
func (c *Client) Close() {
	c.series.close()
	c.api.Close()
}

// A StatusError is an error status of the API server.
type StatusError struct {
	// Code is the HTTP status code, Message the message of the API server on one line.
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message)
}

// IsNotFound reports whether the object does not exist.
func IsNotFound(err error) bool { return codeOf(err) == http.StatusNotFound }

// IsRefused reports whether the API server rejects the agent's credentials or permissions.
func IsRefused(err error) bool {
	return codeOf(err) == http.StatusUnauthorized || codeOf(err) == http.StatusForbidden
}

// IsConflict reports whether the object has changed since it was read.
func IsConflict(err error) bool { return codeOf(err) == http.StatusConflict }

// IsAnswer reports whether the API server rejected the request permanently, so that a retry does
// not help.
func IsAnswer(err error) bool {
	code := codeOf(err)
	return code/100 == 4 && code != http.StatusUnauthorized && code != http.StatusTooManyRequests
}

// IsStatus reports whether the API server replied.
func IsStatus(err error) bool { return codeOf(err) != 0 }

func codeOf(err error) int {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// maxAnswer limits the size of a reply. A DaemonSet or a page of pods is a few KiB large.
const maxAnswer = 8 << 20

// do sends a request, and decodes the reply into answer unless it is nil.
func (c *Client) do(
	ctx context.Context, method, path string, query url.Values, body, answer any,
) error {
	response, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	return decode(response, method, path, answer)
}

// decode decodes a reply into answer unless it is nil, and closes its body.
func decode(response *http.Response, method, path string, answer any) error {
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: the answer is cut short: %w", method, path, err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s %s: the answer is no such object: %w", method, path, err)
	}
	return nil
}

// send sends a request, and returns the reply if it is a success.
func (c *Client) send(
	ctx context.Context, method, path string, query url.Values, body any,
) (*http.Response, error) {
	response, err := c.api.Do(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	return success(response, method, path)
}

// success returns a reply if it is a success.
func success(response *http.Response, method, path string) (*http.Response, error) {
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, fmt.Errorf("%s %s: %w", method, path, statusError(response))
}

func statusError(response *http.Response) error {
	var status struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	// A reply that is not JSON comes from a proxy; the code is sufficient.
	_ = json.Unmarshal(text, &status)
	if status.Message == "" {
		status.Message = http.StatusText(response.StatusCode)
	}
	return &StatusError{
		Code: response.StatusCode, Message: strings.Join(strings.Fields(status.Message), " "),
	}
}
