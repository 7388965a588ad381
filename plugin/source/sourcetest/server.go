package sourcetest

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A Server stands for an API server. It is safe for concurrent use.
type Server struct {
	tb      testing.TB
	url     string
	network *memory // nil on TCP
	http    http.Server

	mu       sync.Mutex
	objects  map[string]map[string]any // by path
	history  history
	token    string
	more     []string // tokens that are accepted too
	issue    func(seconds int64) (token string, expiry time.Time)
	next     []Behaviour
	always   Behaviour
	requests []Request
	accepted int
	held     []net.Conn
}

// A Request is one that reached the server through TLS.
type Request struct {
	Time   time.Time
	Path   string
	Header http.Header
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

// StartInMemory starts a server that is reached by [Server.Dial] only. It ends with the test.
func StartInMemory(tb testing.TB) *Server {
	tb.Helper()
	network := newMemory()
	return start(tb, network, &Server{url: "https://" + memoryName + ":443", network: network})
}

func start(tb testing.TB, l net.Listener, s *Server) *Server {
	s.tb, s.token, s.objects, s.always = tb, "sluice.test.token", map[string]map[string]any{}, Well()
	s.history.news = make(chan struct{})
	s.http = http.Server{
		Handler:           s,
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute,
	}
	trust := &tls.Config{
		Certificates: []tls.Certificate{authority().server},
		ClientCAs:    authority().pool,
		// As an API server, which answers 401 to a certificate that is not good.
		ClientAuth: tls.RequestClientCert,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.http.Serve(tls.NewListener(&door{Listener: l, server: s}, trust))
	}()
	tb.Cleanup(func() {
		_ = s.http.Close()
		<-done
		s.release()
	})
	return s
}

// URL returns where the server is.
func (s *Server) URL() string { return s.url }

// Dial connects to a server that was started in memory, whatever the address.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) { return s.network.dial(ctx) }

// SetToken sets the only bearer token that is accepted from now on.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.more = token, nil
}

// AddToken adds a bearer token to those that are accepted.
func (s *Server) AddToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = append(s.more, token)
}

// Token returns the bearer token that is accepted.
func (s *Server) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Next tells the server how to treat the tries that come next, one behaviour for each connection or
// request; after them it does what Always said.
func (s *Server) Next(behaviours ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, behaviours...)
}

// Always tells the server how to treat all other tries; at first [Well].
func (s *Server) Always(b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = b
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Connections returns how many connections were accepted so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, Request{Time: time.Now(), Path: r.URL.Path, Header: r.Header.Clone()})
	s.mu.Unlock()
	s.take(false).request(s, w, r)
}

// take returns the behaviour of a new connection or of a request. A connection leaves those that
// are about requests.
func (s *Server) take(connection bool) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.always
	if len(s.next) > 0 {
		b = s.next[0]
	}
	if connection && b.connection == nil {
		return b
	}
	if len(s.next) > 0 {
		s.next = s.next[1:]
	}
	return b
}
