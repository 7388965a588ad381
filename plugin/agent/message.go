package agent

import (
	"fmt"
	"path/filepath"

	"github.com/sluice-mesh/sluice/plugin/source"
)

// Version is the version of the protocol that this package speaks.
const Version = 1

// SocketIn returns the path of the socket below the directory that plugin and agent share. It is in a directory of its own, which
// nobody but root may enter.
func SocketIn(runDir string) string { return filepath.Join(runDir, "agent", "plugin.sock") }

// A Verb says what a request is about.
type Verb string

// The verbs. AskPod to AskReady are questions; TellLog and TellAdd are not answered.
const (
	AskPod       Verb = "pod"       // the pod of Request.Ref
	AskNamespace Verb = "namespace" // the namespace Request.Namespace
	AskPolicy    Verb = "policy"    // the plugin's configuration as the agent would have it now
	AskReady     Verb = "ready"     // whether a pod could be answered now
	TellLog      Verb = "log"       // Request.Line is for the log
	TellAdd      Verb = "add"       // Request.Add is what became of an ADD
)

// IsQuestion tells whether a request with the verb is answered.
func (v Verb) IsQuestion() bool {
	switch v {
	case AskPod, AskNamespace, AskPolicy, AskReady:
		return true
	}
	return false
}

// A Request is what the plugin sends.
type Request struct {
	Version int  `json:"version"`
	Verb    Verb `json:"verb"`
	// Namespace, Name and UID name what is asked for.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Line is one line of the log without its end, for TellLog.
	Line string `json:"line,omitempty"`
	// Add is for TellAdd.
	Add *Add `json:"add,omitempty"`
}

// Ref is the pod that is asked for.
func (r *Request) Ref() source.Ref {
	return source.Ref{Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

// Supported tells whether this program knows what the request means.
func (r *Request) Supported() error {
	if r.Version < 1 || r.Version > Version {
		return fmt.Errorf("protocol version %d is not spoken here, but 1 to %d", r.Version, Version)
	}
	if !r.Verb.IsQuestion() && r.Verb != TellLog && r.Verb != TellAdd {
		return fmt.Errorf("verb %q is not known here", cut(string(r.Verb)))
	}
	return nil
}

// An Answer is what the agent sends to a question, with a body after it unless there is an error.
type Answer struct {
	Version int `json:"version"`
	// Kind and Error say why there is no body; both are empty if there is one.
	Kind  source.Kind `json:"kind,omitempty"`
	Error string      `json:"error,omitempty"`
}

// Refusal returns the answer that an error is.
func Refusal(err error) Answer {
	return Answer{Version: Version, Kind: source.KindOf(err), Error: cut(err.Error())}
}

// err is the error that an answer is; nil if there is none. A kind that this program does not know means that it has no answer.
func (a *Answer) err() error {
	if a.Kind == "" && a.Error == "" {
		return nil
	}
	kind := source.Unavailable
	for _, known := range source.Kinds() {
		if a.Kind == known {
			kind = known
		}
	}
	return source.WithKind(kind, printable(a.Error))
}
