package cluster

import (
	"crypto/rand"
	"strings"
	"time"
)

// An Object is the subject of an event.
type Object struct {
	Kind            string `json:"kind"`
	APIVersion      string `json:"apiVersion"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// NodeObject returns the subject of events about a node. Its UID is the node's name, because
// kubectl describe looks up the events of a node by this UID, which the kubelet uses too.
func NodeObject(name string) Object {
	return Object{Kind: "Node", APIVersion: "v1", Name: name, UID: name}
}

// An Event is an event about an object. Its message is one sentence.
type Event struct {
	About Object
	// Warning marks a warning; otherwise the type is Normal.
	Warning bool
	// Reason is one word in CamelCase.
	Reason  string
	Message string
	// Node is the node of the reporting agent.
	Node string
	Time time.Time
	// Count is the number of occurrences since the last report; 0 means 1.
	Count int
}

// maxMessage is the maximum length of a message in bytes (the limit of the field note in
// events.k8s.io/v1).
const maxMessage = 1024

// component is the name of the agent in its events.
const component = "sluice-node"

// maxName is the maximum length of an object's name in bytes.
const maxName = 253

// eventName returns a new random name for an event about the object with the given name.
func eventName(object string) string {
	suffix := "." + strings.ToLower(rand.Text()[:16])
	return strings.TrimRight(object[:min(len(object), maxName-len(suffix))], "-.") + suffix
}
