package testbed

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// A server answers requests on the endpoints that serve adds. A nil server serves nothing.
type server struct {
	identity identity
	accept   acceptFunc

	mu        sync.Mutex
	closed    bool
	endpoints map[endpoint]bool
	listeners []socket.Socket   // the TCP listeners
	files     map[*os.File]bool // all sockets, including accepted connections
	wg        sync.WaitGroup
}

// endpoint is a port of one protocol.
type endpoint struct {
	protocol rules.Protocol // TCP or UDP
	port     uint16
}

// An acceptFunc returns the responder for a connection or datagram to the endpoint. The hop has all
// fields except By, which the function sets.
type acceptFunc func(e endpoint, h Hop) (responder, error)

// A responder answers the requests of one connection, or one datagram.
type responder interface {
	respond() []Hop
	close()
}

// acceptAs returns an acceptFunc that answers every request with the name.
func acceptAs(name Name) acceptFunc {
	return func(_ endpoint, h Hop) (responder, error) {
		h.By = name
		return lastHop(h), nil
	}
}

// lastHop is the responder of a server that does not forward.
type lastHop Hop

func (h lastHop) respond() []Hop { return []Hop{Hop(h)} }
func (h lastHop) close()         {}

// newServer returns a server without endpoints.
func newServer(id identity, accept acceptFunc) *server {
	return &server{
		identity: id, accept: accept, endpoints: map[endpoint]bool{}, files: map[*os.File]bool{},
	}
}

// serve starts to listen on the endpoint unless the server already listens there. If a socket of
// another server uses the port, serve returns nil without listening.
func (s *server) serve(e endpoint, options ...socket.Option) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("listen on port %d: %w", e.port, os.ErrClosed)
	}
	if s.endpoints[e] {
		return nil
	}
	var l socket.Socket
	err := s.identity.do(func() (err error) {
		l, err = listen(e, options...)
		return err
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil
	}
	if err != nil {
		return err
	}
	s.endpoints[e], s.files[l.File] = true, true
	if e.protocol == rules.UDP {
		s.wg.Go(func() { s.answerDatagrams(l, e) })
		return nil
	}
	s.listeners = append(s.listeners, l)
	s.wg.Go(func() {
		// An accepted connection belongs to the user of the accepting thread.
		_ = s.identity.as(func() error { return s.acceptAll(l, e) })
	})
	return nil
}

// listen opens a socket on a port of every address of both families.
func listen(e endpoint, options ...socket.Option) (socket.Socket, error) {
	options = append(options, socket.BothFamilies)
	if e.protocol == rules.UDP {
		// Do not set ReuseAddr, which would allow two UDP sockets on a port.
		options = append(options, receiveDst)
	} else {
		options = append(options, socket.ReuseAddr)
	}
	fd, err := socket.New(rules.IPv6, e.protocol, options...)
	if err != nil {
		return socket.Socket{}, err
	}
	err = socket.Bind(fd, netip.AddrPortFrom(netip.IPv6Unspecified(), e.port))
	if err == nil && e.protocol == rules.TCP {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		_ = unix.Close(fd)
		return socket.Socket{}, fmt.Errorf("listen on port %d: %w", e.port, err)
	}
	return socket.FromFD(fd), nil
}

// close closes all listeners and connections and waits for their goroutines. It shuts the listeners
// down first, because a child process that a test is starting has copies of the descriptors until
// it calls execve. Without the shutdown, the kernel would accept connections until then.
func (s *server) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		_ = l.Control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
	}
	for f := range s.files {
		_ = f.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// acceptAll accepts and answers connections until the listener is closed.
func (s *server) acceptAll(l socket.Socket, e endpoint) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return os.ErrClosed
		}
		s.files[c.File] = true
		s.wg.Go(func() { s.serveConn(c, e) })
		s.mu.Unlock()
	}
}

// serveConn answers the requests of a connection until it ends.
func (s *server) serveConn(c socket.Socket, e endpoint) {
	defer func() {
		s.mu.Lock()
		delete(s.files, c.File)
		s.mu.Unlock()
		_ = c.Close()
	}()
	local, peer := c.Addrs()
	r, err := s.accept(e, Hop{To: c.OriginalDst(), Local: local, Peer: peer})
	if err != nil {
		return
	}
	defer r.close()
	requests := bufio.NewReader(c)
	for {
		token, err := requests.ReadString('\n')
		if err != nil {
			return
		}
		answer := encode(strings.TrimSuffix(token, "\n"), r.respond())
		if _, err := c.WriteString(answer); err != nil {
			return
		}
	}
}
