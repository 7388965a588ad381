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

// A Client asks the API server. It is safe for concurrent use.
type Client struct {
	api    *apiclient.Client
	series *series
}

// New returns a client that sends its requests with api.
func New(api *apiclient.Client) *Client {
	return &Client{api: api, series: newSeries()}
}

// Close closes idle connections, also those of api. Repetitions of events that are not written yet
// are given up.
func (c *Client) Close() {
	c.series.close()
	c.api.Close()
}

// A StatusError is an answer of the API server that is not what was asked for.
type StatusError struct {
	// Code is that of HTTP, Message what the API server says, on one line.
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message)
}

// IsNotFound reports whether the API server says that there is no such object.
func IsNotFound(err error) bool { return codeOf(err) == http.StatusNotFound }

// IsRefused reports whether the API server does not answer this agent: its credentials are not
// accepted, or not sufficient.
func IsRefused(err error) bool {
	return codeOf(err) == http.StatusUnauthorized || codeOf(err) == http.StatusForbidden
}

// IsConflict reports whether the object is not any more the one that the question was about.
func IsConflict(err error) bool { return codeOf(err) == http.StatusConflict }

// IsAnswer reports whether the API server has answered that it will not do it, however often it is
// asked.
func IsAnswer(err error) bool {
	code := codeOf(err)
	return code/100 == 4 && code != http.StatusUnauthorized && code != http.StatusTooManyRequests
}

// IsStatus reports whether the API server has answered at all.
func IsStatus(err error) bool { return codeOf(err) != 0 }

func codeOf(err error) int {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// maxAnswer bounds what is read of an answer; a DaemonSet or a page of pods has some KiB.
const maxAnswer = 8 << 20

// do sends a request, and decodes the answer into one that is not nil.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	response, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
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

// send sends a request, and returns the answer if that is a success.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	response, err := c.api.Do(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, fmt.Errorf("%s %s: %w", method, path, statusError(response))
}

func statusError(response *http.Response) error {
	var status struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	// What is no JSON comes from a proxy, and the code says enough.
	_ = json.Unmarshal(text, &status)
	if status.Message == "" {
		status.Message = http.StatusText(response.StatusCode)
	}
	return &StatusError{Code: response.StatusCode, Message: strings.Join(strings.Fields(status.Message), " ")}
}
