package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/listen"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Objects provides the objects for the plugin. All methods may be called concurrently; errors have
// a [source.Kind].
type Objects interface {
	// Pod and Namespace return an object in JSON. fetched reports whether the result comes from a
	// new request to the API server.
	Pod(ctx context.Context, ref source.Ref) (object []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (object []byte, fetched bool, err error)
	// Ready returns nil if pods are available now.
	Ready(ctx context.Context) error
}

// Options are the options of a [Server]. All except Host and Enroll are required. All functions may
// be called concurrently, and must not block unless noted.
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
	// done.
	Locate func(ctx context.Context, namespace, name string) (agent.Location, error)
	// Host returns the rules that the node should have for pods in ambient mode. Its errors have a
	// [source.Kind]. Host is nil if ambient mode is disabled.
	Host func() (agent.HostRules, error)
	// Enroll enrolls a pod with the given network namespace and addresses in ambient mode. It
	// blocks until ztunnel has acknowledged the pod. The context ends when the server ends. The
	// errors have a [source.Kind], or a kind of package agent. Enroll is nil if ambient mode is
	// disabled.
	Enroll func(
		ctx context.Context, ref source.Ref, ns *netns.NS, addresses []netip.Addr,
	) (agent.Enrollment, error)
	// Status returns the state of the node as a JSON value.
	Status func() any
	// Log is called with each line of the plugin's log, a JSON object without the line end.
	Log func(line []byte)
	// Added is called with each valid report of an ADD.
	Added func(agent.Add)
	// PodFetched is called with the JSON of each pod that the plugin has requested from the API
	// server. An error means that the JSON is invalid.
	PodFetched func(pod []byte) error
	// Answered is called with the outcome and the duration of each query.
	Answered func(Outcome, time.Duration)
	// Failed is called with errors for the log, such as a client that is not root, an invalid
	// request, or a removed socket.
	Failed func(error)
}

// Limits for clients.
const (
	maxConnections = 64
	// ioTimeout is the time limit for receiving a request, and for sending an answer. It is longer
	// than the plugin's timeout, because the agent may get no processor time for seconds after it
	// has accepted a connection. A request that arrives in this time must not be rejected.
	ioTimeout = 5 * time.Second
	// queryTimeout is the time limit for answering the plugin. It is less than the plugin's
	// timeout, so that the plugin receives an error.
	queryTimeout = 800 * time.Millisecond
	// locateTimeout is the time limit for a query of a user. It is less than the timeout of the
	// rules command.
	locateTimeout = 2500 * time.Millisecond
	// maxEnrollments is the maximum number of concurrent enrollments. It is more than the maximum
	// number of pods of a kubelet (maxPods, usually 110 or 250). The server accepts this number of
	// connections in addition to maxConnections.
	maxEnrollments = 512
)

// A Server serves the plugin. Use [New].
type Server struct {
	options     Options
	listener    *listen.Server
	enrollments chan struct{}      // semaphore for maxEnrollments
	ctx         context.Context    // ends with Run
	cancel      context.CancelFunc // of ctx
}

// New returns a server that is not listening yet.
func New(o Options) *Server {
	if o.Host == nil {
		o.Host = func() (agent.HostRules, error) {
			return agent.HostRules{}, source.WithKind(source.NotFound,
				errors.New("ambient mode is disabled in this agent"))
		}
	}
	connections := maxConnections
	if o.Enroll != nil {
		connections += maxEnrollments
	} else {
		o.Enroll = func(
			context.Context, source.Ref, *netns.NS, []netip.Addr,
		) (agent.Enrollment, error) {
			return agent.Enrollment{}, source.WithKind(source.Misconfigured,
				errors.New("ambient mode is disabled in this agent"))
		}
	}
	s := &Server{options: o, enrollments: make(chan struct{}, maxEnrollments)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.listener = listen.New(listen.Options{
		Network: "unix", Path: o.Socket, MaxConnections: connections,
		Serve:  func(conn *net.UnixConn, _ unix.Ucred) error { return s.serve(conn) },
		Failed: o.Failed,
	})
	return s
}

// Listening reports whether the socket exists and belongs to this server or to another running one.
// It is false before and after Run.
func (s *Server) Listening() bool { return s.listener.Listening() }

// Run serves until the context ends, and returns after all requests have been handled. The socket
// remains, because the next agent replaces it; until then the plugin uses the API server. Errors
// are passed to Options.Failed, and creating the socket is retried.
func (s *Server) Run(ctx context.Context) {
	defer s.cancel()
	defer context.AfterFunc(ctx, s.cancel)()
	s.listener.Run(ctx)
}
