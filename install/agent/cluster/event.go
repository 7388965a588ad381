package cluster

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// An Object is what an event is about.
type Object struct {
	Kind            string `json:"kind"`
	APIVersion      string `json:"apiVersion"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// NodeObject is a node, as kubectl describe looks for its events: the kubelet gives the name in the place of the UID.
func NodeObject(name string) Object {
	return Object{Kind: "Node", APIVersion: "v1", Name: name, UID: name}
}

// An Event is one sentence for whoever looks at an object.
type Event struct {
	About Object
	// Warning makes it one; otherwise it is Normal.
	Warning bool
	// Reason is one word in CamelCase.
	Reason  string
	Message string
	// Node is where the agent that tells it runs.
	Node string
	Time time.Time
}

// maxMessage is what the API server takes (ValidateEvent).
const maxMessage = 1024

// Tell writes an event, its message on one line. Those about objects without a namespace are in the namespace default.
func (c *Client) Tell(ctx context.Context, e Event) error {
	namespace := e.About.Namespace
	if namespace == "" {
		namespace = "default"
	}
	kind, when := "Normal", e.Time.UTC().Format(time.RFC3339)
	if e.Warning {
		kind = "Warning"
	}
	return c.do(ctx, http.MethodPost, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/events", nil, map[string]any{
		"kind": "Event", "apiVersion": "v1",
		"metadata":       Meta{Name: eventName(e.About.Name), Namespace: namespace},
		"involvedObject": e.About, "type": kind, "reason": e.Reason, "message": text.Cut(text.Printable(e.Message), maxMessage),
		"source":         map[string]string{"component": component, "host": e.Node},
		"firstTimestamp": when, "lastTimestamp": when, "count": 1,
		"reportingComponent": component, "reportingInstance": e.Node,
	}, nil)
}

const component = "sluice-node"

// maxName is what the name of an object has at most.
const maxName = 253

// eventName returns a name for an event about an object of a name.
func eventName(about string) string {
	end := "." + strings.ToLower(rand.Text()[:16])
	return strings.TrimRight(about[:min(len(about), maxName-len(end))], "-.") + end
}
