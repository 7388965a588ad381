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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/install/apiclient"
)

// A Client sends requests to the API server. It is safe for concurrent use.
type Client struct {
	api    *apiclient.Client
	series *eventSeries
}

// New returns a client that sends its requests with api.
func New(api *apiclient.Client) *Client {
	return &Client{api: api, series: newEventSeries()}
}

// Close discards pending repetitions of events, and closes the idle connections of api.
func (c *Client) Close() {
	c.series.close()
	c.api.Close()
}

// A StatusError is an error status of the API server.
type StatusError struct {
	// Code is the HTTP status code.
	Code int
	// Message is the message of the API server on one line.
	Message string
	// Missing is the name of the object that does not exist, with Code 404. It is empty if the
	// reply names no object: a load balancer replies 404 if it cannot reach an API server, and an
	// API server that is starting replies 404 for each resource that it does not serve yet.
	Missing string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message)
}

// IsNotFound reports whether the API server says that the object does not exist. It returns false
// for a reply 404 that is not about an object; see [StatusError.Missing].
func IsNotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound && status.Missing != ""
}

// IsRefused reports whether the API server rejects the agent's credentials or denies permission.
func IsRefused(err error) bool {
	return codeOf(err) == http.StatusUnauthorized || codeOf(err) == http.StatusForbidden
}

// IsConflict reports whether the object has changed or was replaced since it was read.
func IsConflict(err error) bool { return codeOf(err) == http.StatusConflict }

// IsPermanent reports whether the API server rejected the request permanently, so that a retry does
// not help. For a reply 404 that is not about an object, IsPermanent returns false, like
// [IsNotFound].
func IsPermanent(err error) bool {
	switch code := codeOf(err); code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusNotFound:
		return IsNotFound(err)
	default:
		return code/100 == 4
	}
}

// HasReply reports whether the error is a reply of the API server.
func HasReply(err error) bool { return codeOf(err) != 0 }

func codeOf(err error) int {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// maxReply is the maximum size of a reply in bytes. The largest replies are pages of pods (see
// podsPerPage).
const maxReply = 8 << 20

// do sends a request, and decodes the reply into object unless object is nil.
func (c *Client) do(ctx context.Context, method, path string, body, object any) error {
	response, err := c.api.Do(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := checkStatus(response, method, path); err != nil {
		return err
	}
	return decode(response, method, path, object)
}

// decode decodes a response into object unless object is nil, and closes the response.
func decode(response *http.Response, method, path string, object any) error {
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	if err != nil {
		return fmt.Errorf("%s %s: the reply is cut short: %w", method, path, err)
	}
	if len(text) > maxReply {
		return fmt.Errorf("%s %s: the reply has more than %d bytes", method, path, maxReply)
	}
	if object == nil {
		return nil
	}
	if err := json.Unmarshal(text, object); err != nil {
		return fmt.Errorf("%s %s: the reply is not the expected object: %w", method, path, err)
	}
	return nil
}

// get reads the object with the name into object.
func (c *Client) get(ctx context.Context, path, name string, object metav1.Object) error {
	if err := c.do(ctx, http.MethodGet, path, nil, object); err != nil {
		return err
	}
	if object.GetName() != name {
		return fmt.Errorf("%s %s: the reply is not the expected object: its name is %q, not %q",
			http.MethodGet, path, object.GetName(), name)
	}
	return nil
}

// listMetadata lists objects with only their metadata.
func (c *Client) listMetadata(
	ctx context.Context, path string, query url.Values,
) (*metav1.PartialObjectMetadataList, error) {
	response, err := c.requestMetadata(ctx, path, query)
	if err != nil {
		return nil, err
	}
	list := new(metav1.PartialObjectMetadataList)
	if err := decode(response, http.MethodGet, path, list); err != nil {
		return nil, err
	}
	// A reply without a kind is not from an API server, and must not be mistaken for an empty list.
	if !strings.HasSuffix(list.Kind, "List") {
		return nil, fmt.Errorf(
			"%s %s: the reply is not the expected object: its kind is %q, not a list",
			http.MethodGet, path, list.Kind)
	}
	return list, nil
}

// requestMetadata requests only the metadata of objects. It returns an error unless the response
// has a 2xx status.
func (c *Client) requestMetadata(
	ctx context.Context, path string, query url.Values,
) (*http.Response, error) {
	response, err := c.api.Metadata(ctx, path, query)
	if err != nil {
		return nil, err
	}
	return response, checkStatus(response, http.MethodGet, path)
}

// checkStatus returns nil if the response has a 2xx status. Otherwise it closes the response and
// returns a [StatusError].
func checkStatus(response *http.Response, method, path string) error {
	if response.StatusCode/100 == 2 {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	return fmt.Errorf("%s %s: %w", method, path, statusError(response))
}

func statusError(response *http.Response) error {
	var status struct {
		Message string
		Details struct{ Name, Kind string }
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	// A reply that is not JSON comes from a proxy; the code is sufficient.
	_ = json.Unmarshal(text, &status)
	if status.Message == "" {
		status.Message = http.StatusText(response.StatusCode)
	}
	result := &StatusError{
		Code: response.StatusCode, Message: strings.Join(strings.Fields(status.Message), " "),
	}
	if result.Code == http.StatusNotFound && status.Details.Kind != "" {
		result.Missing = status.Details.Name
	}
	return result
}
