package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/agent"
)

const (
	// leaveTimeout is the maximum time after leave in which connections are accepted.
	leaveTimeout = time.Second
	// drainTime is the time without a connection after which no more are expected from clients that
	// connected before the socket was replaced.
	drainTime = 50 * time.Millisecond
)

// Options are the options of a [Server]. All fields are required.
type Options struct {
	// Network is "unix" for a stream socket or "unixpacket" for a socket that keeps the boundaries
	// of messages.
	Network string
	// Path is the path of the socket. Path may have at most 107 bytes, and the path of its
	// directory at most 93, because the socket first gets a temporary name of 13 bytes. The
	// directory is created if it does not exist, gets the mode 0700, and must belong to the user of
	// the process.
	Path string
	// MaxConnections is the maximum number of connections that are served at a time. Others wait in
	// the queue of the socket.
	MaxConnections int
	// Serve is called for each connection from root, in a goroutine for each. The connection is
	// closed when Serve returns.
	Serve func(conn *net.UnixConn, peer unix.Ucred) error
	// Failed is called with errors for the log: a socket that cannot be created or was removed, a
	// connection that cannot be accepted, a client that is not root, or an error of Serve. It may
	// be called concurrently, and must not block.
	Failed func(error)
}

// A Server listens on a socket. Use [New].
type Server struct {
	options   Options
	slots     chan struct{} // semaphore for MaxConnections
	handlers  sync.WaitGroup
	listening atomic.Bool
	replaced  atomic.Bool
}

// New returns a server that is not listening yet.
func New(o Options) *Server {
	return &Server{options: o, slots: make(chan struct{}, o.MaxConnections)}
}

// Listening reports whether the socket exists and belongs to this server or to another running one.
// It is false before and after Run.
func (s *Server) Listening() bool { return s.listening.Load() }

// Replaced reports whether the socket at the path belongs to another running process, which has
// replaced the socket of this server.
func (s *Server) Replaced() bool { return s.replaced.Load() }

// Run serves until the context ends, and returns when all calls of Options.Serve have returned. The
// socket remains, because the next agent replaces it. Errors are passed to Options.Failed, and the
// failed operation is repeated.
func (s *Server) Run(ctx context.Context) {
	watcher := newSocketWatcher(s.options.Path)
	defer watcher.close()
	var current *listener
	var listeners sync.WaitGroup
	lastError := ""
	for {
		watcher.renew()
		next, err := s.ensureSocket(current)
		if text := fmt.Sprint(err); text != lastError { // report a repeated error once
			if lastError = text; err != nil {
				s.options.Failed(err)
			}
		}
		s.listening.Store(err == nil)
		if next != current {
			current.leave()
			current = next
			listeners.Go(func() { s.accept(next) })
			watcher.renew() // the directory may have been created
		}
		inPlace := current.isInPlace()
		s.replaced.Store(err == nil && !inPlace)
		if !watcher.wait(ctx, err == nil && inPlace) {
			break
		}
	}
	s.listening.Store(false)
	current.leave()
	listeners.Wait()
	s.handlers.Wait()
}

// ensureSocket returns the current listener if its socket, or a socket of another running agent, is
// at the path. Otherwise it creates a new one.
func (s *Server) ensureSocket(current *listener) (*listener, error) {
	network, path := s.options.Network, s.options.Path
	if current != nil && (current.isInPlace() || isOpen(path)) {
		return current, nil
	}
	next, err := open(network, path)
	if err != nil {
		return current, err
	}
	if current != nil {
		s.options.Failed(fmt.Errorf("socket %s was removed, and was created again", path))
	}
	return next, nil
}

// accept serves the connections of a listener, up to MaxConnections at a time, until leave is
// called and no more connections arrive. It closes the listener.
func (s *Server) accept(l *listener) {
	defer func() { _ = l.Close() }()
	for {
		s.slots <- struct{}{}
		conn, err := l.next()
		if err != nil {
			<-s.slots
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return // leave was called
			}
			s.options.Failed(fmt.Errorf("socket %s: %w", s.options.Path, err))
			if !l.pause() {
				return
			}
			continue
		}
		s.handlers.Go(func() {
			defer func() { <-s.slots }()
			defer func() { _ = conn.Close() }()
			if err := s.serve(conn); err != nil {
				s.options.Failed(fmt.Errorf("socket %s: %w", s.options.Path, err))
			}
		})
	}
}

func (s *Server) serve(conn *net.UnixConn) error {
	peer, err := agent.Peer(conn)
	if err != nil {
		return err
	}
	if peer.Uid != 0 {
		return fmt.Errorf("connection from uid %d rejected: only root may connect", peer.Uid)
	}
	return s.options.Serve(conn, *peer)
}
