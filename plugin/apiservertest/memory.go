package apiservertest

import (
	"context"
	"net"
	"sync"
)

// memoryName is the host name of servers without a network.
const memoryName = "memory.test"

// memory is a network in memory with one listener.
type memory struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newMemory() *memory {
	return &memory{connections: make(chan net.Conn), closed: make(chan struct{})}
}

// dial connects to the listener.
func (m *memory) dial(ctx context.Context) (net.Conn, error) {
	near, far := newConnection()
	var err error
	select {
	case m.connections <- far:
		return near, nil
	case <-m.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = near.Close()
	_ = far.Close()
	return nil, err
}

// Accept implements [net.Listener].
func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.connections:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

// Addr implements [net.Listener].
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: memoryName, Net: "pipe"} }
