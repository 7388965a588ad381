package agent

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/sluice-mesh/sluice/plugin/text"
)

// Version is the version of the protocol.
const Version = 1

// SocketIn returns the path of the socket below the run directory that the plugin and the agent
// share. The socket has its own directory, which only root may enter.
func SocketIn(runDir string) string { return filepath.Join(runDir, "agent", "plugin.sock") }

// A Verb is the kind of a request.
type Verb string

// The verbs. NotifyLog, NotifyAdd and NotifyPod are not answered; the others are queries.
const (
	GetPod       Verb = "pod"       // the pod with Namespace, Name and UID
	GetNamespace Verb = "namespace" // the namespace Request.Namespace
	GetPolicy    Verb = "policy"    // the agent's current configuration for the plugin
	GetReady     Verb = "ready"     // no object, but an error if pods are not available now
	// AskLocate requests the [Location] of the pod with Namespace and Name. Request.UID is ignored.
	AskLocate Verb = "locate"
	GetHost   Verb = "host"   // the [HostRules] of the node
	GetStatus Verb = "status" // the [Status] of the node
	// AskEnroll requests the [Enrollment] of the pod with Namespace, Name and UID. A descriptor of
	// the pod's network namespace comes with the request (SCM_RIGHTS).
	AskEnroll Verb = "enrol"
	NotifyLog Verb = "log" // Request.Line is a line of the plugin's log
	NotifyAdd Verb = "add" // Request.Add is the report of an ADD
	// NotifyPod reports Request.Pod, which the plugin has requested from the API server because the
	// agent had no answer.
	NotifyPod Verb = "fetched"
)

// IsQuery reports whether a request with the verb is answered.
func (v Verb) IsQuery() bool {
	switch v {
	case GetPod, GetNamespace, GetPolicy, GetReady, AskLocate, GetHost, GetStatus, AskEnroll:
		return true
	}
	return false
}

// isNotification reports whether the verb is known, and a request with it is not answered.
func (v Verb) isNotification() bool { return v == NotifyLog || v == NotifyAdd || v == NotifyPod }

// A Request is a message to the agent.
type Request struct {
	Version int  `json:"version"`
	Verb    Verb `json:"verb"`
	// Namespace, Name and UID name the object of a query, as far as its verb needs them.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Addresses are the addresses of the pod, for AskEnroll.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Line is one line of the log without its end, for NotifyLog.
	Line string `json:"line,omitempty"`
	// Add is the report, for NotifyAdd.
	Add *Add `json:"add,omitempty"`
	// Pod is the JSON of a [decide.Pod], for NotifyPod.
	Pod json.RawMessage `json:"pod,omitempty"`
}

// CheckSupported returns an error unless this version of the protocol supports the request.
func (r *Request) CheckSupported() error {
	if r.Version < 1 || r.Version > Version {
		return fmt.Errorf("protocol version %d is not supported, only 1 to %d", r.Version, Version)
	}
	if !r.Verb.IsQuery() && !r.Verb.isNotification() {
		return fmt.Errorf("verb %q is unknown", text.Truncate(string(r.Verb), maxTextBytes))
	}
	return nil
}

// An Answer is the agent's reply to a query. A body follows unless the Answer has an error.
type Answer struct {
	Version int `json:"version"`
	// Kind and Error describe why there is no body. Both are empty if there is a body. The kinds
	// are defined by package source and [EnrollKinds].
	Kind  string `json:"kind,omitempty"`
	Error string `json:"error,omitempty"`
}

// maxTextBytes limits the length of untrusted text in errors.
const maxTextBytes = 600

// ErrorAnswer returns an answer with an error of the kind.
func ErrorAnswer(kind string, err error) Answer {
	return Answer{Version: Version, Kind: kind, Error: text.Truncate(err.Error(), maxTextBytes)}
}

// err returns the error of the answer as a [Refusal], or nil.
func (a *Answer) err() error {
	if a.Kind == "" && a.Error == "" {
		return nil
	}
	return &Refusal{Kind: a.Kind, Text: text.Truncate(a.Error, maxTextBytes)}
}
