package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// maxObject is the maximum size of an object in bytes. etcd accepts 1.5 MiB (--max-request-bytes)
// of protobuf, and the API server accepts requests of 3 MiB. The JSON of an object, with escapes,
// defaults and managed fields, is usually less than three times as large as its protobuf.
const maxObject = 8 << 20

// readObject reads an answer of status 200.
func readObject(answer *http.Response) ([]byte, *requestError) {
	if mediaType, _, _ := mime.ParseMediaType(
		answer.Header.Get("Content-Type")); mediaType != "application/json" {
		return nil, unavailable("its answer has content type %s, not application/json",
			shortQuote(mediaType))
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxObject+1))
	switch {
	case len(body) > maxObject:
		return nil, &requestError{
			kind: Unavailable, final: true,
			err: fmt.Errorf("its answer is larger than %d MiB", maxObject>>20),
		}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &requestError{
			kind: Unavailable, timedOut: true, err: errors.New("no complete answer"),
		}
	case err != nil:
		return nil, unavailable("its answer is incomplete: %w", err)
	}
	return body, nil
}

// object contains the fields that every object has.
type object struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// decode decodes an answer and checks its kind. answer is a pointer to the struct that embeds o.
func (o *object) decode(body []byte, answer any, kind string) *requestError {
	if err := json.Unmarshal(body, answer); err != nil {
		return unavailable("its answer is not a %s: %w", kind, err)
	}
	if o.Kind != kind || o.APIVersion != "v1" {
		return unavailable("its answer is kind %s of %s, not kind %s of v1", shortQuote(o.Kind),
			shortQuote(o.APIVersion), kind)
	}
	return nil
}

// checkName returns an error if the answer is not the requested object: a broken proxy may return
// another one.
func checkName(m *decide.Metadata, namespace, name string) *requestError {
	if m.Namespace == namespace && m.Name == name {
		return nil
	}
	return unavailable("its answer is the object %s in namespace %s", shortQuote(m.Name),
		shortQuote(m.Namespace))
}
