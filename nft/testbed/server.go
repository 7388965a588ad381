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

// A server answers on the ports that it was told to serve. A nil server serves nothing.
type server struct {
	who   identity
	greet greeter

	mu     sync.Mutex
	closed bool
	ports  map[endpoint]bool
	files  map[*os.File]bool // listeners and connections
	wg     sync.WaitGroup
}

// endpoint is a port of one protocol.
type endpoint struct {
	protocol rules.Protocol // TCP or UDP
	port     uint16
}

// A greeter begins the conversation with a caller who has reached a port as the hop says, but for
// the name that the greeter knows. What it returns answers each request.
type greeter func(e endpoint, h Hop) (responder, error)

// A responder answers requests, each a token, on one connection.
type responder interface {
	respond(token string) []Hop
	close()
}

// plain greets everybody by the same name.
func plain(name Name) greeter {
	return func(_ endpoint, h Hop) (responder, error) {
		h.By = name
		return here(h), nil
	}
}

// here answers that the call ends here.
type here Hop

func (h here) respond(string) []Hop { return []Hop{Hop(h)} }
func (h here) close()               {}

func newServer(who identity, greet greeter) *server {
	return &server{who: who, greet: greet, ports: map[endpoint]bool{}, files: map[*os.File]bool{}}
}

// serve listens at the endpoint if it does not yet. That somebody else does already is no error.
func (s *server) serve(e endpoint, options ...socket.Option) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("listen on port %d: %w", e.port, os.ErrClosed)
	}
	if s.ports[e] {
		return nil
	}
	var l socket.Socket
	err := s.who.do(func() (err error) {
		l, err = listen(e, options...)
		return err
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil
	}
	if err != nil {
		return err
	}
	s.ports[e], s.files[l.File] = true, true
	if e.protocol == rules.UDP {
		s.wg.Go(func() { s.answerDatagrams(l, e) })
		return nil
	}
	s.wg.Go(func() {
		// Accepted connections, too, are to be the identity's.
		_ = s.who.as(func() error { return s.acceptAll(l, e) })
	})
	return nil
}

// listen makes a socket on a port of every address of both families.
func listen(e endpoint, options ...socket.Option) (socket.Socket, error) {
	options = append(options, socket.BothFamilies)
	if e.protocol == rules.UDP {
		// With ReuseAddr two could listen on a port.
		options = append(options, wantDst)
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

// close ends everything and waits for its end.
func (s *server) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	for f := range s.files {
		_ = f.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// acceptAll answers connections until the listener is closed.
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
		s.wg.Go(func() { s.converse(c, e) })
		s.mu.Unlock()
	}
}

// converse answers the requests of a connection until it ends.
func (s *server) converse(c socket.Socket, e endpoint) {
	defer func() {
		s.mu.Lock()
		delete(s.files, c.File)
		s.mu.Unlock()
		_ = c.Close()
	}()
	local, peer := c.Addrs()
	r, err := s.greet(e, Hop{To: c.OriginalDst(), Local: local, Peer: peer})
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
		if _, err := c.WriteString(encode(strings.TrimSuffix(token, "\n"), r.respond(token))); err != nil {
			return
		}
	}
}
