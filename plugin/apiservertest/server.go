package apiservertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Server is a fake API server. It is safe for concurrent use.
type Server struct {
	// Watching gets a value when a watch of DaemonSets begins.
	Watching chan struct{}

	tb      testing.TB
	url     string
	network *memory // nil on TCP
	http    http.Server
	done    chan struct{} // closed when the server accepts no more connections

	mu          sync.Mutex
	authority   *certificates              // signed the server's certificate
	objects     map[string]map[string]any  // by path
	onNode      map[string]map[string]bool // paths of pods by node
	history     history
	token       string
	extra       []string                                             // other accepted tokens
	issue       func(seconds int64) (token string, expiry time.Time) // see Issue
	projected   string                                               // the directory of the projected token and CA; empty if there is none
	next        []Behavior
	always      Behavior
	allowsHTTP2 bool
	requests    []Request
	accepted    int               // number of connections
	served      map[net.Conn]bool // open connections
	held        []net.Conn        // connections that are open, but not served

	daemonSets daemonSets
	pods       pods
	events     events
	conflicts  int // number of further patches of nodes that are refused as conflicts
}

// Start starts a server on a free port of 127.0.0.1. It ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, l, &Server{url: "https://" + l.Addr().String()})
}

// StartInMemory starts a server without a network: clients connect with [Server.Dial]. It ends with
// the test.
func StartInMemory(tb testing.TB) *Server {
	tb.Helper()
	network := newMemory()
	return start(tb, network, &Server{url: "https://" + memoryName + ":443", network: network})
}

// StartForAgent starts a server on a free port of 127.0.0.1 that has the node agent's DaemonSet and
// its node, which has the label role=worker. The accepted token belongs to the agent's service
// account. The server ends with the test.
func StartForAgent(tb testing.TB) *Server {
	tb.Helper()
	s := Start(tb)
	s.SetDaemonSet(`{}`)
	s.AddNode(Node, map[string]any{"role": "worker"})
	s.SetToken(JWT(Account, time.Now(), time.Now().Add(time.Hour)))
	return s
}

// start initializes the server and serves the listener until the test ends.
func start(tb testing.TB, l net.Listener, s *Server) *Server {
	s.tb, s.token, s.objects, s.always = tb, "sluice.test.token", map[string]map[string]any{},
		Normal()
	s.onNode = map[string]map[string]bool{}
	s.authority, s.served = authority(), map[net.Conn]bool{}
	s.Watching, s.history.changed = make(chan struct{}, 16), make(chan struct{})
	s.http = http.Server{
		Handler:           s,
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute,
		ConnState:         s.track,
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.tlsConfig}
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.http.Serve(tls.NewListener(&listener{Listener: l, server: s}, config))
	}()
	tb.Cleanup(s.Stop)
	return s
}

// tlsConfig returns the configuration for a client that connects now.
func (s *Server) tlsConfig(*tls.ClientHelloInfo) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &tls.Config{
		Certificates: []tls.Certificate{s.authority.server},
		ClientCAs:    authority().pool,
		// Like an API server, the handler replies 401 to an invalid client certificate; the
		// handshake succeeds.
		ClientAuth: tls.RequestClientCert,
		MinVersion: tls.VersionTLS12,
		NextProtos: s.protocols(),
	}, nil
}

// AllowHTTP2 lets clients negotiate HTTP/2 from now on, as an API server does. Behaviors that
// reset the connection of a request need HTTP/1.1.
func (s *Server) AllowHTTP2() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowsHTTP2 = true
}

// protocols returns the protocols for TLS. The caller holds the mutex.
func (s *Server) protocols() []string {
	if s.allowsHTTP2 {
		return []string{"h2", "http/1.1"}
	}
	return []string{"http/1.1"}
}

// Stop stops the server, which then cannot be reached.
func (s *Server) Stop() {
	_ = s.http.Close()
	<-s.done
	s.release()
}

// URL returns the URL of the server.
func (s *Server) URL() string { return s.url }

// Address returns the host and port of the server.
func (s *Server) Address() string { return strings.TrimPrefix(s.url, "https://") }

// Dial connects to the server. It ignores the network and the address.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if s.network == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Address())
	}
	return s.network.dial(ctx)
}

// Next adds behaviors for the next connections or requests. Each behavior is applied once, in
// order. Afterwards the behavior of Always applies.
func (s *Server) Next(behaviors ...Behavior) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, behaviors...)
}

// Always sets the behavior of all connections and requests for which Next has added none. It is
// initially [Normal].
func (s *Server) Always(b Behavior) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = b
}

// Fault is like Always, but also closes all connections.
func (s *Server) Fault(b Behavior) {
	s.Always(b)
	s.CloseConnections()
}

// Recover restores the behavior [Normal] after Fault, and closes all connections.
func (s *Server) Recover() { s.Fault(Normal()) }

// Requests returns the requests received so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Connections returns the number of accepted connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, Request{
		Time: time.Now(), Method: r.Method, Path: r.URL.Path, Watch: isWatch(r),
		Header: r.Header.Clone(),
	})
	s.mu.Unlock()
	// net/http notices the end of the connection, and cancels the request's context, only after the
	// handler has read the body.
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.take(false).request(s, w, r)
}

// take returns the behavior for a new connection or for a request. A connection does not consume
// behaviors for requests.
func (s *Server) take(isConnection bool) Behavior {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.always
	if len(s.next) > 0 {
		b = s.next[0]
	}
	if isConnection && b.connection == nil {
		return b
	}
	if len(s.next) > 0 {
		s.next = s.next[1:]
	}
	return b
}
