package apiservertest

import (
	"net"
	"sync"
	"time"
)

// A memoryConn is one end of a connection in memory. As on a network, Write does not wait for the
// peer, and the peer can read written data after Close. With a net.Pipe, two ends that write at the
// same time, such as a server that sends certificates and a client that rejects the first, would
// wait for each other.
type memoryConn struct {
	net.Conn          // what the peer sends
	out      net.Conn // what the peer reads

	mu      sync.Mutex
	changed sync.Cond // signals a change of pending or closing
	pending []byte    // written, and not yet sent
	closing bool      // Close was called
	err     error     // of sending
}

// newConnection returns both ends of a connection.
func newConnection() (near, far *memoryConn) {
	a, b := net.Pipe()
	c, d := net.Pipe()
	return newMemoryConn(a, c), newMemoryConn(d, b)
}

func newMemoryConn(in, out net.Conn) *memoryConn {
	c := &memoryConn{Conn: in, out: out}
	c.changed.L = &c.mu
	go c.drain()
	return c
}

// Write implements [net.Conn]. It may return the error of an earlier write.
func (c *memoryConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return 0, net.ErrClosed
	}
	if c.err != nil {
		return 0, c.err
	}
	c.pending = append(c.pending, p...)
	c.changed.Signal()
	return len(p), nil
}

// Close implements [net.Conn].
func (c *memoryConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.changed.Signal()
	return c.Conn.Close()
}

// SetDeadline implements [net.Conn]. Write never waits and has no deadline.
func (c *memoryConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

// drain sends written data until this end is closed and the peer has read everything, or the peer
// is closed.
func (c *memoryConn) drain() {
	defer func() { _ = c.out.Close() }()
	for {
		p := c.take()
		if len(p) == 0 {
			return
		}
		if _, err := c.out.Write(p); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

// take waits for data to send, and returns nil at the end.
func (c *memoryConn) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) == 0 && !c.closing {
		c.changed.Wait()
	}
	p := c.pending
	c.pending = nil
	return p
}
