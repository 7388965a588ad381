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

// Objects are what the plugin asks for. All methods are called concurrently; errors have a
// [source.Kind].
type Objects interface {
	// Pod and Namespace return an object in JSON, and whether the API server had to be asked for
	// it.
	Pod(ctx context.Context, ref source.Ref) (object []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (object []byte, fetched bool, err error)
	// Ready reports whether pods can be answered now.
	Ready(ctx context.Context) error
}

// Options say what is served. All functions are called concurrently, and must not wait but where it
// is said.
type Options struct {
	// Socket is the path of the socket; see [agent.SocketIn]. Its directory is made if there is
	// none, and gets the mode 0700.
	Socket string
	// Objects answers the plugin's questions.
	Objects Objects
	// Policy returns the plugin's configuration as it should be now, a JSON object; nil for none.
	Policy func() json.RawMessage
	// Locate answers where a pod of the node is, and what it should have there. Its errors have a
	// [source.Kind]: NotFound if the node has no such pod. It may wait until the context is done;
	// nil means that nobody knows.
	Locate func(ctx context.Context, namespace, name string) (agent.Location, error)
	// Status answers how the node is, with what can be written as JSON; nil means that nobody
	// knows.
	Status func() any
	// Log takes a line of the plugin's log, one JSON object without the end of the line.
	Log func(line []byte)
	// Added takes what became of an ADD. It is valid.
	Added func(agent.Add)
	// Answered counts questions, with the time that the answer took.
	Answered func(Result, time.Duration)
	// Failed takes what went wrong, for the log: a peer that is not root, a request that is not
	// understood, a socket that was lost.
	Failed func(error)
}

// Limits of what callers may cost.
const (
	maxConnections = 64
	// requestTime is for the request to arrive, and again for the answer to be taken: the peer is
	// on the same machine.
	requestTime = time.Second
	// answerTime is less than the plugin waits, so that it hears why there is no answer.
	answerTime = 800 * time.Millisecond
	// locateTime is for a question that is not the plugin's but a person's, and less than the
	// command rules waits.
	locateTime = 2500 * time.Millisecond
	// drainTime is for those who found the socket before it was given up.
	drainTime = 50 * time.Millisecond
)

// A Server answers the plugin. Use [New].
type Server struct {
	options   Options
	slots     chan struct{}
	handlers  sync.WaitGroup
	listening atomic.Bool
}

// New returns a server that does not listen yet. Functions that are nil in the options are not
// called.
func New(o Options) *Server {
	if o.Policy == nil {
		o.Policy = func() json.RawMessage { return nil }
	}
	if o.Locate == nil {
		o.Locate = func(context.Context, string, string) (agent.Location, error) {
			return agent.Location{}, source.WithKind(source.Unavailable, errors.New("this agent locates no pods"))
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

// Listening reports whether the socket is there and leads to this server or to another living one;
// not before Run, and not after it.
func (s *Server) Listening() bool { return s.listening.Load() }

// Run serves until the context ends, and returns when all that was asked is answered. The socket
// stays where it is, since the next agent replaces it, and a plugin that finds nobody behind it
// goes to the API server at once. What cannot be done is told to Options.Failed and tried again.
func (s *Server) Run(ctx context.Context) {
	look := newSocketWatcher(s.options.Socket)
	defer look.close()
	var current *listener
	var listeners sync.WaitGroup
	told := ""
	for {
		look.renew()
		next, err := s.guard(current)
		if text := fmt.Sprint(err); text != told { // and not every second
			if told = text; err != nil {
				s.options.Failed(err)
			}
		}
		s.listening.Store(err == nil)
		if next != current {
			current.leave()
			current = next
			listeners.Go(func() { s.accept(next) })
			look.renew() // its directory may be a new one
		}
		if !look.wait(ctx, err == nil && current.inPlace()) {
			break
		}
	}
	s.listening.Store(false)
	current.leave()
	listeners.Wait()
	s.handlers.Wait()
}

// accept lets in whoever comes through a listener, but no more at a time than allowed, until the
// listener is left.
func (s *Server) accept(d *listener) {
	defer d.close()
	for {
		s.slots <- struct{}{}
		conn, err := d.next()
		if err != nil {
			<-s.slots
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return // it was left
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
