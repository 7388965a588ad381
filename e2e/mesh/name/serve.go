package name

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// A Responder answers a DNS query from a peer.
type Responder func(network string, query []byte, peer netip.AddrPort) ([]byte, error)

// Serve serves DNS over UDP and TCP on addr until ctx is canceled, when it returns nil, or until a
// socket fails. A query for which respond returns an error gets no reply.
func Serve(ctx context.Context, addr string, respond Responder) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var config net.ListenConfig
	udp, err := config.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = udp.Close() }()
	tcp, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = tcp.Close() }()
	go func() { cancel(serveUDP(udp, respond)) }()
	go func() { cancel(serveTCP(tcp, respond)) }()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
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

// serveTCP answers the first query of each connection.
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
