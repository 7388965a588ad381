package ztunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/listen"
)

// DefaultSocket is the path at which Istio's ztunnel connects.
const DefaultSocket = "/var/run/ztunnel/ztunnel.sock"

const (
	maxConnections = 16
	helloTimeout   = 5 * time.Second
	writeTimeout   = 5 * time.Second
	// lateAfter is the time after which an acknowledgement is logged as late. Istio's agent closes
	// the connection instead.
	lateAfter = 5 * time.Second
)

// A Server sends pods to ztunnels. Use [New]. It is safe for concurrent use.
type Server struct {
	log       *zap.Logger
	connected func(n int)   // see New
	restored  chan struct{} // closed by Restore
	listener  atomic.Pointer[listen.Server]

	mu          sync.Mutex
	pods        map[string]*servedPod // by UID
	removed     map[string]bool       // UIDs that were removed before Restore; nil after Restore
	accepted    int                   // number of connections, including those without a hello
	lastID      uint64
	connections map[*connection]struct{} // after hello
	waiters     map[*waiter]struct{}
}

// New returns a server without pods. It calls connected after each change with the number of
// connected ztunnels, including ztunnels that have not sent a hello. connected must not block, and
// must not call the server.
func New(log *zap.Logger, connected func(n int)) *Server {
	return &Server{
		log: log, connected: connected, restored: make(chan struct{}),
		pods: map[string]*servedPod{}, removed: map[string]bool{},
		connections: map[*connection]struct{}{}, waiters: map[*waiter]struct{}{},
	}
}

// Serve listens on a socket, usually [DefaultSocket], until the context ends; then it closes all
// connections and returns nil. It may be called only once; later calls return an error. A ztunnel
// that connects before [Server.Restore] is served after it.
//
// The directory of the socket must belong to the user of the process, and gets the mode 0700. The
// socket replaces another agent's socket atomically, and remains until the next agent replaces it.
// Problems with the socket are logged, and the failed operation is repeated.
func (s *Server) Serve(ctx context.Context, socket string) error {
	l := listen.New(listen.Options{
		Network: "unixpacket", Path: socket, MaxConnections: maxConnections,
		Serve: func(conn *net.UnixConn, peer unix.Ucred) error {
			return s.serveConnection(ctx, conn, peer.Pid)
		},
		Failed: func(err error) { s.log.Warn("error on the socket of ztunnel", zap.Error(err)) },
	})
	if !s.listener.CompareAndSwap(nil, l) {
		return errors.New("serve ztunnel: Serve was called before")
	}
	l.Run(ctx)
	return nil
}

// Restore sets the pods that exist when the agent starts. The server serves no ztunnel before the
// first call. The first call does not change pods that [Server.Add] or [Server.Remove] has changed
// before. A later call adds pods without waiting for ztunnel. A pod whose network namespace cannot
// be duplicated is logged, and restored without one; a pod without a UID is logged and ignored.
func (s *Server) Restore(pods []Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		if p.UID == "" {
			s.log.Warn("pod not restored", zap.Stringer("pod", p), zap.Error(errNoUID))
			continue
		}
		if s.removed[p.UID] || !s.isRestored() && s.pods[p.UID] != nil {
			continue
		}
		served, err := s.put(p)
		if err != nil {
			s.log.Warn("pod restored without its network namespace", zap.Error(err))
			p.Netns = nil
			served, _ = s.put(p) // fails only with a network namespace
		}
		s.enqueue(served)
	}
	if !s.isRestored() {
		s.removed = nil
		close(s.restored)
	}
}

// isRestored reports whether Restore was called.
func (s *Server) isRestored() bool { return s.removed == nil }

// Add adds a pod, or replaces the pod with the same UID, and sends it to each connected ztunnel. It
// returns nil once a ztunnel has acknowledged the pod. An unchanged pod is sent only to ztunnels
// that have not accepted it.
//
// If no ztunnel is connected, the error wraps [ErrNotConnected]; if each ztunnel has refused the
// pod, it wraps [ErrRefused]. If the context ends, the error wraps the context's error, and says
// which messages are not acknowledged and since when. After these errors the pod is in the state,
// and is sent to the next ztunnel that connects. After other errors the state does not contain this
// version of the pod; it may contain an earlier or a later version.
func (s *Server) Add(ctx context.Context, p Pod) error {
	if p.UID == "" {
		return errNoUID
	}
	if p.Netns == nil {
		return fmt.Errorf("pod %s: the network namespace is unknown", p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	served, err := s.put(p)
	if err != nil {
		return err
	}
	delete(s.removed, p.UID)
	s.enqueue(served)
	return s.wait(ctx, served.String(), p.UID, func() (bool, error) { return s.isAdded(served) })
}

// Remove removes the pod with the UID, which need not be in the state. It returns nil once each
// connected ztunnel has acknowledged the removal, or if none is connected. If a ztunnel refuses the
// removal, the error wraps [ErrRefused]; if the context ends, the error is as for [Server.Add]. The
// pod is not in the state even after an error; Remove may be repeated.
func (s *Server) Remove(ctx context.Context, uid string) error {
	if uid == "" {
		return errNoUID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := "uid " + uid
	if served := s.pods[uid]; served != nil {
		name = served.String()
		s.removePod(served)
	} else if !s.isRestored() {
		s.removed[uid] = true
	}
	for c := range s.connections {
		delete(c.results, uid)
		c.enqueue(uid)
	}
	return s.wait(ctx, name, uid, func() (bool, error) { return s.isDeleted(uid) })
}

// Refused returns an error that wraps [ErrRefused] if ztunnels are connected and each of them has
// refused the pod with the UID, and nil otherwise. A ztunnel that connects later can refuse a pod
// for which [Server.Add] has returned nil.
func (s *Server) Refused(uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := s.pods[uid]
	if served == nil {
		return nil
	}
	if err := s.refusal(served); err != nil {
		return fmt.Errorf("pod %s: %w", served, err)
	}
	return nil
}

// put adds a pod to the state, or replaces the pod with the same UID unless it is unchanged. It
// returns the pod in the state.
func (s *Server) put(p Pod) (*servedPod, error) {
	old := s.pods[p.UID]
	if old != nil && old.matches(p) {
		return old, nil
	}
	served, err := newServedPod(p)
	if err != nil {
		return nil, err
	}
	if old != nil {
		s.removePod(old)
	}
	s.pods[p.UID] = served
	return served, nil
}

// removePod removes a pod from the state, and wakes the waiters for it.
func (s *Server) removePod(served *servedPod) {
	delete(s.pods, served.UID)
	served.removed = true
	served.closeUnused()
	s.notify(served.UID)
}

// enqueue adds a pod to the queue of each connection that has not acknowledged the pod, except
// connections on which the pod was sent last and is not acknowledged yet.
func (s *Server) enqueue(served *servedPod) {
	for c := range s.connections {
		if c.reply(served) == acknowledged ||
			c.unacknowledged != nil && c.unacknowledged.pod == served {
			continue
		}
		delete(c.results, served.UID)
		c.enqueue(served.UID)
	}
}
