package scale

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// A meter counts connections and their bytes, including TLS.
type meter struct {
	server   *apiservertest.Server
	received atomic.Int64 // by the API server
	sent     atomic.Int64

	mu    sync.Mutex
	dials []time.Time
}

// dial connects to the server. Refused connections are counted too.
func (m *meter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	m.mu.Lock()
	m.dials = append(m.dials, time.Now())
	m.mu.Unlock()
	c, err := m.server.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return countedConn{c, m}, nil
}

// countedConn is the client's end of a connection.
type countedConn struct {
	net.Conn
	meter *meter
}

// Read implements [net.Conn].
func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.sent.Add(int64(n))
	return n, err
}

// Write implements [net.Conn].
func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.received.Add(int64(n))
	return n, err
}
