package name

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// A Responder answers a query of a peer.
type Responder func(network string, query []byte, peer netip.AddrPort) ([]byte, error)

// Serve answers queries by UDP and TCP at an address, until the context ends or a socket fails.
// What the responder refuses, and callers who hang up, get no answer.
func Serve(ctx context.Context, at string, respond Responder) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", at)
	if err != nil {
		return err
	}
	defer func() { _ = packets.Close() }()
	streams, err := config.Listen(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer func() { _ = streams.Close() }()
	go func() { cancel(servePackets(packets, respond)) }()
	go func() { cancel(serveStreams(streams, respond)) }()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func servePackets(l net.PacketConn, respond Responder) error {
	for {
		query := make([]byte, maxDatagram)
		n, peer, err := l.ReadFrom(query)
		if err != nil {
			return err
		}
		go func() {
			if answer, err := respond("udp", query[:n], peer.(*net.UDPAddr).AddrPort()); err == nil {
				_, _ = l.WriteTo(answer, peer)
			}
		}()
	}
}

// serveStreams answers one query of each connection.
func serveStreams(l net.Listener, respond Responder) error {
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
			if answer, err := respond("tcp", query, conn.RemoteAddr().(*net.TCPAddr).AddrPort()); err == nil {
				_ = WriteFrame(conn, answer)
			}
		}()
	}
}
