package proxy

import (
	"context"
	"io"
	"log"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// connectTimeout is the time limit for connecting to an original destination.
const connectTimeout = 5 * time.Second

// A tcpProxy forwards the connections of one direction.
type tcpProxy struct {
	podName     string // name of the pod of the proxy
	direction   path.Direction
	transparent bool
}

// serve accepts connections until the listener is closed or fails.
func (c tcpProxy) serve(ctx context.Context, l net.Listener) error {
	for {
		down, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := c.proxyConn(ctx, down.(*net.TCPConn)); err != nil {
				log.Printf("%s connection of %s: %v", c.direction, down.RemoteAddr(), err)
			}
		}()
	}
}

// proxyConn forwards a connection to its original destination, and then closes the connection. If
// forwarding fails, for example because the destination is unreachable, proxyConn resets the
// connection, so that the caller gets an error.
func (c tcpProxy) proxyConn(ctx context.Context, down *net.TCPConn) error {
	defer func() { _ = down.Close() }()
	hop := path.Hop{Proxy: c.podName, Direction: c.direction, Peer: path.AddrPort(down.RemoteAddr())}
	to, err := Original(down)
	if err == nil {
		hop.Original = to
		err = c.exchange(ctx, down, hop)
	}
	if err != nil {
		_ = down.SetLinger(0)
	}
	return err
}

// exchange connects to the original destination, and copies in both directions.
func (c tcpProxy) exchange(ctx context.Context, down *net.TCPConn, hop path.Hop) error {
	up, err := c.dial(ctx, hop.Peer.Addr(), hop.Original)
	if err != nil {
		return err
	}
	return Exchange(down, down.CloseWrite, up, hop)
}

// Exchange copies in both directions between down and up until both have ended or the direction to
// up fails, and then closes up. It sets the hop's Upstream for CopyWithHop, and calls closeWrite to
// end the direction to down.
func Exchange(down io.ReadWriter, closeWrite func() error, up net.Conn, hop path.Hop) error {
	defer func() { _ = up.Close() }()
	hop.Upstream = path.AddrPort(up.LocalAddr())
	received := make(chan error, 1)
	go func() {
		_, err := io.Copy(down, up)
		_ = closeWrite()
		received <- err
	}()
	if err := CopyWithHop(up, down, hop); err != nil {
		return err
	}
	_ = up.(*net.TCPConn).CloseWrite()
	return <-received
}

// dial connects to the original destination. As with Envoy, the source address of an inbound
// connection is 127.0.0.6 or ::6, or with TPROXY the address of the caller.
func (c tcpProxy) dial(
	ctx context.Context, peer netip.Addr, to netip.AddrPort,
) (net.Conn, error) {
	if port := to.Port(); port == outboundPort || port == inboundPort {
		return nil, &net.AddrError{Err: "destination is the proxy itself", Addr: to.String()}
	}
	dialer := net.Dialer{Timeout: connectTimeout}
	switch {
	case c.direction == path.Outbound:
	case c.transparent:
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer, 0))
		dialer.Control = Marked
	case to.Addr().Is4():
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
	default:
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP("::6")}
	}
	return dialer.DialContext(ctx, "tcp", to.String())
}
