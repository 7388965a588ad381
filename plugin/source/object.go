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

// maxObject is how many bytes an object may have. etcd takes 1.5 MiB (--max-request-bytes) in protobuf, and the API server 3 MiB
// in a request; JSON with escapes, defaults and managed fields is not three times that.
const maxObject = 8 << 20

// readObject reads an answer of status 200.
func readObject(answer *http.Response) ([]byte, *trouble) {
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind != "application/json" {
		return nil, &trouble{kind: Unavailable, err: fmt.Errorf("it answers with %s and not with JSON", shortQuote(kind))}
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxObject+1))
	switch {
	case len(body) > maxObject:
		return nil, &trouble{kind: Unavailable, final: true, err: fmt.Errorf("its answer has more than %d MiB", maxObject>>20)}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &trouble{kind: Unavailable, late: true, err: errors.New("no complete answer")}
	case err != nil:
		return nil, &trouble{kind: Unavailable, err: fmt.Errorf("its answer is cut short: %w", err)}
	}
	return body, nil
}

// object is what every answer has to say of itself.
type object struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// decode fills the answer, of which the object is a part.
func (o *object) decode(body []byte, answer any, kind string) *trouble {
	if err := json.Unmarshal(body, answer); err != nil {
		return &trouble{kind: Unavailable, err: fmt.Errorf("its answer is no %s: %w", kind, err)}
	}
	if o.Kind != kind || o.APIVersion != "v1" {
		err := fmt.Errorf("its answer is a %s of %s and not a %s of v1", shortQuote(o.Kind), shortQuote(o.APIVersion), kind)
		return &trouble{kind: Unavailable, err: err}
	}
	return nil
}

// named tells whether an answer is about what was asked for; something between here and the API server may have mixed it up.
func named(m *decide.Metadata, namespace, name string) *trouble {
	if m.Namespace == namespace && m.Name == name {
		return nil
	}
	err := fmt.Errorf("its answer is about %s in namespace %s", shortQuote(m.Name), shortQuote(m.Namespace))
	return &trouble{kind: Unavailable, err: err}
}
