// Package clustertest is a double of the API server for tests of the node agent: pods and tokens as
// package sourcetest has them, and beside them the agent's DaemonSet, its node, its pods and
// events.
package clustertest

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/plugin/source/sourcetest"
)

// The names that the server knows.
const (
	Namespace = "sluice-system"
	DaemonSet = "sluice-node"
	Node      = "node-1"
)

// A Server stands for an API server. It is safe for concurrent use.
type Server struct {
	*sourcetest.Server // has pods, namespaces and the token

	// Watching gets something when a watch of the DaemonSet begins.
	Watching chan struct{}

	tb   testing.TB
	http *httptest.Server

	mu sync.Mutex
	// ca signed certificate, which the server shows. identity is where both it and the token are
	// projected, if they are.
	ca          []byte
	certificate tls.Certificate
	identity    string
	set         map[string]any // the DaemonSet; nil for none
	node        map[string]any
	// conflicts is how many patches of the node are refused.
	conflicts int
	agents    []string
	events    []Event
	// updates is how often one was changed, and eventCode what that is refused with; 0 for not at
	// all.
	updates   int
	eventCode int
	deletes   []string // bodies
	code      int      // what requests about DaemonSets are refused with; 0 for not at all
	// podChanges are requests to delete or patch pods, podCode is what they are refused with; 0 for
	// not at all.
	podChanges []string
	podCode    int
	podVerbs   []string                 // which are forbidden
	held       map[string]chan struct{} // by verb; closed when requests are answered again
	faulty     bool                     // [Server.Fault] decides what all requests are answered with
	version    int
	news       chan struct{} // closed and made anew with each change
}

// An Event is one that was told, as it is after the last update of it.
type Event struct {
	Type, Reason, Message string
	Count                 int
	FirstTimestamp        time.Time
	LastTimestamp         time.Time
	Metadata              struct{ Name string }
	InvolvedObject        struct{ Kind, Name string }
}

// Start starts a server that has the DaemonSet, and the node with the label role=worker. It ends
// with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{Server: sourcetest.Start(tb), tb: tb, Watching: make(chan struct{}, 16), news: make(chan struct{})}
	s.SetDaemonSet(`{}`)
	s.node = map[string]any{"metadata": map[string]any{"name": Node, "labels": map[string]any{"role": "worker"}}}
	s.SetToken(sourcetest.JWT(account, time.Now(), time.Now().Add(time.Hour)))
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.route))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.ca, s.certificate = sourcetest.NewAuthority()
	s.http.TLS = &tls.Config{GetConfigForClient: s.shown}
	s.http.StartTLS()
	tb.Cleanup(s.Stop)
	return s
}

// Stop ends the server: from now on it is not reached.
func (s *Server) Stop() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Address is where the server is, without a scheme.
func (s *Server) Address() string { return s.http.Listener.Addr().String() }

// shown is what the server shows to a client that connects now.
func (s *Server) shown(*tls.ClientHelloInfo) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.certificate}, NextProtos: []string{"http/1.1"},
	}, nil
}

// RotateAuthority gives the server a certificate of a new authority, and ends all connections. What
// was projected stays.
func (s *Server) RotateAuthority() {
	ca, certificate := sourcetest.NewAuthority()
	s.mu.Lock()
	s.ca, s.certificate = ca, certificate
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// RecreateAccount makes the server reject all tokens so far, as one does whose ServiceAccount was
// deleted and created again, and ends all connections. What was projected stays. The new token is
// valid from a time on, for an hour.
func (s *Server) RecreateAccount(from time.Time) {
	s.SetToken(sourcetest.JWT(account, from, from.Add(time.Hour)))
	s.http.CloseClientConnections()
}

// Fault makes the server answer all requests as a behaviour says, and ends all connections.
func (s *Server) Fault(b sourcetest.Behaviour) { s.setFault(b, true) }

// Recover ends a fault, and all connections.
func (s *Server) Recover() { s.setFault(sourcetest.Well(), false) }

func (s *Server) setFault(b sourcetest.Behaviour, faulty bool) {
	s.Always(b)
	s.mu.Lock()
	s.faulty = faulty
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// account is the user that the agent's tokens are of.
const account = "system:serviceaccount:" + Namespace + ":sluice"

// Identity writes the files token and ca.crt that a kubelet gives a pod.
func (s *Server) Identity(dir string) {
	s.mu.Lock()
	s.identity = dir
	s.mu.Unlock()
	s.Project()
}

// Project writes both files again, as they should be now.
func (s *Server) Project() {
	s.tb.Helper()
	s.mu.Lock()
	dir, ca := s.identity, s.ca
	s.mu.Unlock()
	for name, content := range map[string][]byte{"token": []byte(s.Token()), "ca.crt": ca} {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path+".new", content, 0o600)
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			s.tb.Fatal(err)
		}
	}
}

// Config returns how the server is reached.
func (s *Server) Config() *rest.Config {
	s.tb.Helper()
	dir := s.tb.TempDir()
	s.Identity(dir)
	return &rest.Config{
		Host: "https://" + s.Address(), BearerTokenFile: filepath.Join(dir, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	}
}

// SetDaemonSet sets the DaemonSet, given as JSON without a name; empty for none.
func (s *Server) SetDaemonSet(text string) {
	s.tb.Helper()
	var set map[string]any
	if text != "" {
		if err := json.Unmarshal([]byte(text), &set); err != nil {
			s.tb.Fatal(err)
		}
		metadata, _ := set["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"], set["metadata"] = DaemonSet, metadata
	}
	s.change(func() { s.set = set })
}

// SetAgents sets the names of the agent's pods.
func (s *Server) SetAgents(names ...string) { s.change(func() { s.agents = names }) }

// SetTaints sets the node's taints, given as a JSON list. So many patches of the node are answered
// by a conflict.
func (s *Server) SetTaints(text string, conflicts int) {
	s.tb.Helper()
	var taints []any
	if err := json.Unmarshal([]byte(text), &taints); err != nil {
		s.tb.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node["spec"], s.conflicts = map[string]any{"taints": taints}, conflicts
}

// Taints returns the node's taints as JSON.
func (s *Server) Taints() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.node["spec"].(map[string]any)["taints"])
	if err != nil {
		s.tb.Fatal(err)
	}
	return string(text)
}

// Refuse makes the server answer all requests about DaemonSets with a code, and ends watches; 0 for
// not any more.
func (s *Server) Refuse(code int) { s.change(func() { s.code = code }) }

// Events returns the events in the order in which they were last written.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events...)
}

// EventUpdates returns how often an event was changed.
func (s *Server) EventUpdates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates
}

// RefuseEventUpdates makes the server refuse to change events with a code; 0 for not any more.
func (s *Server) RefuseEventUpdates(code int) { s.change(func() { s.eventCode = code }) }

// RefusePods makes the server answer requests to delete or patch pods with a code; 0 for not any
// more.
func (s *Server) RefusePods(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.podCode = code
}

// ForbidPods makes the server forbid to get, list or watch pods, as one does whose ClusterRole
// lacks these verbs; none for not any more.
func (s *Server) ForbidPods(verbs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.podVerbs = verbs
}

// HoldPods makes requests to get, list or watch pods wait until the returned function is called.
func (s *Server) HoldPods(verb string) (release func()) {
	hold := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]chan struct{}{}
	}
	s.held[verb] = hold
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.held, verb)
		s.mu.Unlock()
		close(hold)
	})
}

// hold waits as long as requests like this one are held.
func (s *Server) hold(r *http.Request) {
	s.mu.Lock()
	hold := s.held[podVerb(r)]
	s.mu.Unlock()
	if hold == nil {
		return
	}
	select {
	case <-hold:
	case <-r.Context().Done():
	}
}

// PodChanges returns the requests to delete or patch pods: method, path and body.
func (s *Server) PodChanges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.podChanges...)
}

// Deletes returns the bodies of the requests to delete the DaemonSet.
func (s *Server) Deletes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.deletes...)
}

// change makes a change, and tells those who watch.
func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	s.version++
	close(s.news)
	s.news = make(chan struct{})
}
