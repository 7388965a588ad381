package validation

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// An endpoint is the address of a listener.
type endpoint struct {
	protocol    rules.Protocol
	addr        netip.AddrPort
	transparent bool
}

// A caller is the sender of a probe.
type caller struct {
	protocol rules.Protocol
	addr     netip.AddrPort
}

// An arrival is a connection or datagram that has reached a listener.
type arrival struct {
	port     uint16         // of the listener
	original netip.AddrPort // the original destination; invalid for datagrams
}

// listeners receive probes, identify them by their source addresses, and close all connections.
type listeners struct {
	mu       sync.Mutex
	expected map[caller]chan arrival
	sockets  []socket.Socket
	tcpPorts []uint16 // of the listeners that accept connections
	wg       sync.WaitGroup
}

// expect returns a channel that receives the arrival of the caller's probe. Call it before sending
// the probe.
func (l *listeners) expect(c caller) <-chan arrival {
	arrived := make(chan arrival, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expected == nil {
		l.expected = map[caller]chan arrival{}
	}
	l.expected[c] = arrived
	return arrived
}

// announce sends the arrival to the channel of the caller, and reports whether there is such a
// channel.
func (l *listeners) announce(c caller, a arrival) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	arrived, ok := l.expected[c]
	if ok {
		select {
		case arrived <- a:
		default: // a duplicate datagram
		}
	}
	return ok
}

// listen opens a listener in the namespace of the thread, with the owner of the thread. The error
// wraps [unix.EADDRINUSE] if the endpoint is in use.
func (l *listeners) listen(e endpoint) error {
	// Do not set SO_REUSEPORT, which a proxy sets. With this option, a listener that this process
	// opens as the proxy's user would receive some of the proxy's connections.
	var options []socket.Option
	if e.protocol == rules.TCP {
		options = append(options, socket.ReuseAddr)
	}
	family := rules.FamilyOf(e.addr.Addr())
	if e.transparent {
		options = append(options, socket.Transparent(family))
	}
	fd, err := socket.New(family, e.protocol, options...)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", e.addr, err)
	}
	err = socket.Bind(fd, e.addr)
	if err == nil && e.protocol == rules.TCP {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("listen on %s: %w", e.addr, err)
	}
	s := socket.FromFD(fd)
	l.sockets = append(l.sockets, s)
	if e.protocol == rules.TCP {
		l.tcpPorts = append(l.tcpPorts, e.addr.Port())
		l.wg.Go(func() { l.acceptConnections(s, e.addr.Port()) })
	} else {
		l.wg.Go(func() { l.answerDatagrams(s, e.addr.Port()) })
	}
	return nil
}

// acceptConnections accepts and closes connections until the listener is closed.
func (l *listeners) acceptConnections(s socket.Socket, port uint16) {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		_, peer := c.Addrs()
		l.announce(caller{rules.TCP, peer}, arrival{port, c.OriginalDst()})
		c.Abort()
	}
}

// answerDatagrams answers the probes' datagrams until the socket is closed.
func (l *listeners) answerDatagrams(s socket.Socket, port uint16) {
	buf := make([]byte, 512)
	for {
		n, from, err := receive(s, buf)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			continue // an ICMP error for an earlier answer
		case err != nil:
			return
		}
		if l.announce(caller{rules.UDP, socket.AddrPort(from)}, arrival{port: port}) {
			_ = s.Control(func(fd int) error {
				return unix.Sendto(fd, dnsAnswer(buf[:n]), 0, from)
			})
		}
	}
}

// receive waits for a datagram or an ICMP error.
func receive(s socket.Socket, buf []byte) (n int, from unix.Sockaddr, err error) {
	err = s.WhenReadable(func(fd int) (err error) {
		n, from, err = unix.Recvfrom(fd, buf, 0)
		return err
	})
	return n, from, err
}

// close closes all listeners, and waits until their goroutines have ended.
func (l *listeners) close() {
	for _, s := range l.sockets {
		_ = s.Close()
	}
	l.wg.Wait()
}

// domain is the domain in the probes' queries, sluice.invalid. The top-level domain invalid has no
// subdomains (RFC 6761, section 6.4). A server that a probe reaches by mistake therefore looks up
// nothing.
const domain = "\x06sluice\x07invalid\x00"

// dnsQuery returns a DNS query for the address of the domain (RFC 1035, section 4.1).
func dnsQuery() []byte {
	return []byte("\x5c\x1c\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + domain + "\x00\x01\x00\x01")
}

// dnsAnswer returns the NXDOMAIN response to a query.
func dnsAnswer(query []byte) []byte {
	answer := slices.Clone(query)
	if len(answer) > 3 {
		answer[2] |= 0x80 // QR: this is a response
		answer[3] = 3     // RCODE: NXDOMAIN
	}
	return answer
}
