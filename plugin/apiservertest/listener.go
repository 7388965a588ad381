package apiservertest

import (
	"net"
	"net/http"
)

// listener accepts connections. Accept returns the connections to serve. The server's behavior
// takes over the other connections.
type listener struct {
	net.Listener
	server *Server
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.server.countConnection()
		b := l.server.take(true)
		if b.connection == nil {
			return c, nil
		}
		b.connection(l.server, c)
	}
}

// countConnection counts an accepted connection.
func (s *Server) countConnection() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
}

// track updates the set of served connections.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.served[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.served, c)
	default:
	}
}

// CloseConnections closes all served connections.
func (s *Server) CloseConnections() {
	s.mu.Lock()
	var served []net.Conn
	for c := range s.served {
		served = append(served, c)
	}
	s.mu.Unlock()
	for _, c := range served {
		_ = c.Close()
	}
}

// hold keeps a connection open until the server ends.
func (s *Server) hold(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, c)
}

// release closes the connections that are held.
func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.held {
		_ = c.Close()
	}
	s.held = nil
}

// reset closes a connection; on TCP, the peer gets a reset.
func reset(c net.Conn) {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
