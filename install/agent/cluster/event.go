package cluster

import (
	"crypto/rand"
	"strings"
	"time"
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

// NodeObject is a node, as kubectl describe looks for its events: the kubelet gives the name in the
// place of the UID.
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
	// Count is how often it has happened since it was told last; 0 is once.
	Count int
}

// maxMessage is what the API server takes (ValidateEvent).
const maxMessage = 1024

const component = "sluice-node"

// maxName is what the name of an object has at most.
const maxName = 253

// eventName returns a name for an event about an object of a name.
func eventName(about string) string {
	end := "." + strings.ToLower(rand.Text()[:16])
	return strings.TrimRight(about[:min(len(about), maxName-len(end))], "-.") + end
}
