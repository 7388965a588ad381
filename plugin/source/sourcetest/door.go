package sourcetest

import "net"

// door accepts connections and lets those through that are to be served.
type door struct {
	net.Listener
	server *Server
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		d.server.count()
		b := d.server.take(true)
		if b.connection == nil {
			return c, nil
		}
		b.connection(d.server, c)
	}
}

func (s *Server) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
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

// reset closes a connection so that the peer gets a reset, where there is such a thing.
func reset(c net.Conn) {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
