package apiservertest

import (
	"net"
	"sync"
	"time"
)

// wire is one end of a connection in memory. As on a network, Write does not wait for the peer, and
// the peer can read written data after Close. With a net.Pipe, two ends that write at the same
// time, such as a server that sends certificates and a client that rejects the first, would wait
// for each other.
type wire struct {
	net.Conn          // what the peer sends
	out      net.Conn // what the peer reads

	mu      sync.Mutex
	changed sync.Cond
	pending []byte
	closing bool
	err     error
}

// newWire returns both ends of a connection.
func newWire() (near, far *wire) {
	a, b := net.Pipe()
	c, d := net.Pipe()
	return newEnd(a, c), newEnd(d, b)
}

func newEnd(in, out net.Conn) *wire {
	w := &wire{Conn: in, out: out}
	w.changed.L = &w.mu
	go w.drain()
	return w
}

// Write implements [net.Conn]. It may return the error of an earlier write.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return 0, net.ErrClosed
	}
	if w.err != nil {
		return 0, w.err
	}
	w.pending = append(w.pending, p...)
	w.changed.Signal()
	return len(p), nil
}

// Close implements [net.Conn].
func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	w.changed.Signal()
	return w.Conn.Close()
}

// SetDeadline implements [net.Conn]. Write never waits and has no deadline.
func (w *wire) SetDeadline(t time.Time) error { return w.SetReadDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// drain sends written data until this end is closed and the peer has read everything, or the peer
// is closed.
func (w *wire) drain() {
	defer func() { _ = w.out.Close() }()
	for {
		p := w.take()
		if len(p) == 0 {
			return
		}
		if _, err := w.out.Write(p); err != nil {
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
			return
		}
	}
}

// take waits for data to send, and returns nil at the end.
func (w *wire) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) == 0 && !w.closing {
		w.changed.Wait()
	}
	p := w.pending
	w.pending = nil
	return p
}
