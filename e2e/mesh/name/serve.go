package name

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// A Responder returns the response to a DNS query from a peer.
type Responder func(network string, query []byte, peer netip.AddrPort) ([]byte, error)

// A Listener receives DNS queries over UDP and TCP. [Listen] creates it.
type Listener struct {
	udp net.PacketConn
	tcp net.Listener
}

// Listen opens the sockets of a Listener at an address with port.
func Listen(ctx context.Context, config net.ListenConfig, addr string) (*Listener, error) {
	udp, err := config.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	tcp, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		_ = udp.Close()
		return nil, err
	}
	return &Listener{udp: udp, tcp: tcp}, nil
}

// Serve responds to queries until ctx is canceled or a socket fails, and then closes the sockets.
// It returns nil if ctx was canceled. If respond returns an error, the query gets no response.
func (l *Listener) Serve(ctx context.Context, respond Responder) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { _, _ = l.udp.Close(), l.tcp.Close() }()
	go func() { cancel(serveUDP(l.udp, respond)) }()
	go func() { cancel(serveTCP(l.tcp, respond)) }()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Serve calls [Listen] and [Listener.Serve].
func Serve(ctx context.Context, addr string, respond Responder) error {
	s, err := Listen(ctx, net.ListenConfig{}, addr)
	if err != nil {
		return err
	}
	return s.Serve(ctx, respond)
}

func serveUDP(l net.PacketConn, respond Responder) error {
	for {
		query := make([]byte, maxDatagram)
		n, peer, err := l.ReadFrom(query)
		if err != nil {
			return err
		}
		go func() {
			if answer, err := respond("udp", query[:n],
				peer.(*net.UDPAddr).AddrPort()); err == nil {
				_, _ = l.WriteTo(answer, peer)
			}
		}()
	}
}

// serveTCP responds to the first query of each connection.
func serveTCP(l net.Listener, respond Responder) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			query, err := ReadFrame(conn)
			if err != nil {
				return
			}
			if answer, err := respond("tcp", query,
				conn.RemoteAddr().(*net.TCPAddr).AddrPort()); err == nil {
				_ = WriteFrame(conn, answer)
			}
		}()
	}
}
