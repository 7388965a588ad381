package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Objects provides the objects for the plugin. All methods are called concurrently; errors have a
// [source.Kind].
type Objects interface {
	// Pod and Namespace return an object in JSON, and whether it was fetched from the API server.
	Pod(ctx context.Context, ref source.Ref) (object []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (object []byte, fetched bool, err error)
	// Ready reports whether pods are available now.
	Ready(ctx context.Context) error
}

// Options are the options of a server. All functions are called concurrently, and must not block
// unless noted.
type Options struct {
	// Socket is the path of the socket; see [agent.SocketIn]. Its directory is created if it does
	// not exist, and gets the mode 0700.
	Socket string
	// Objects provides the objects.
	Objects Objects
	// Policy returns the current configuration for the plugin, a JSON object; nil for none.
	Policy func() json.RawMessage
	// Locate returns the location and the desired redirection of a pod of the node. Its errors have
	// a [source.Kind]: NotFound if the node has no such pod. It may block until the context is
	// done; nil means that it is not available.
	Locate func(ctx context.Context, namespace, name string) (agent.Location, error)
	// Status returns the state of the node as a JSON value; nil means that it is not available.
	Status func() any
	// Log receives a line of the plugin's log, one JSON object without the line end.
	Log func(line []byte)
	// Added receives the valid report of an ADD.
	Added func(agent.Add)
	// Answered counts queries with their duration.
	Answered func(Result, time.Duration)
	// Failed receives errors for the log: a client that is not root, an invalid request, a lost
	// socket.
	Failed func(error)
}

// Limits for clients.
const (
	maxConnections = 64
	// requestTime limits the reception of the request, and again the delivery of the reply: the
	// client is on the same machine.
	requestTime = time.Second
	// answerTime is less than the plugin's timeout, so that the plugin receives the error.
	answerTime = 800 * time.Millisecond
	// locateTime limits a query of a user, and is less than the timeout of the command rules.
	locateTime = 2500 * time.Millisecond
	// drainTime is the time for clients that connected before the socket was replaced.
	drainTime = 50 * time.Millisecond
)

// A Server serves the plugin. Use [New].
type Server struct {
	options   Options
	slots     chan struct{}
	handlers  sync.WaitGroup
	listening atomic.Bool
}

// New returns a server that is not listening yet. Functions that are nil in the options are not
// called.
func New(o Options) *Server {
	if o.Policy == nil {
		o.Policy = func() json.RawMessage { return nil }
	}
	if o.Locate == nil {
		o.Locate = func(context.Context, string, string) (agent.Location, error) {
			return agent.Location{}, source.WithKind(source.Unavailable,
				errors.New("this agent does not support locating pods"))
		}
	}
	if o.Status == nil {
		o.Status = func() any { return nil }
	}
	if o.Log == nil {
		o.Log = func([]byte) {}
	}
	if o.Added == nil {
		o.Added = func(agent.Add) {}
	}
	if o.Answered == nil {
		o.Answered = func(Result, time.Duration) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return &Server{options: o, slots: make(chan struct{}, maxConnections)}
}

// Listening reports whether the socket exists and belongs to this server or to another running one.
// It is false before and after Run.
func (s *Server) Listening() bool { return s.listening.Load() }

// Run serves until the context ends, and returns after all requests are answered. The socket
// remains, because the next agent replaces it; a plugin that finds no listener uses the API server
// immediately. Errors are passed to Options.Failed, and the operation is repeated.
func (s *Server) Run(ctx context.Context) {
	watcher := newSocketWatcher(s.options.Socket)
	defer watcher.close()
	var current *listener
	var listeners sync.WaitGroup
	lastError := ""
	for {
		watcher.renew()
		next, err := s.guard(current)
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
			watcher.renew() // its directory may have been created
		}
		if !watcher.wait(ctx, err == nil && current.owned()) {
			break
		}
	}
	s.listening.Store(false)
	current.leave()
	listeners.Wait()
	s.handlers.Wait()
}

// accept serves the connections of a listener, up to a maximum number at a time, until leave is
// called.
func (s *Server) accept(d *listener) {
	defer d.close()
	for {
		s.slots <- struct{}{}
		conn, err := d.next()
		if err != nil {
			<-s.slots
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return // leave was called
			}
			s.options.Failed(fmt.Errorf("socket %s: %w", s.options.Socket, err))
			if !d.pause() {
				return
			}
			continue
		}
		s.handlers.Go(func() {
			defer func() { <-s.slots }()
			defer func() { _ = conn.Close() }()
			if err := s.serve(conn); err != nil {
				s.options.Failed(fmt.Errorf("socket %s: %w", s.options.Socket, err))
			}
		})
	}
}
