package name

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/miekg/dns"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// A Responder returns the response to a DNS query from a peer.
type Responder func(network string, query *dns.Msg, peer netip.AddrPort) (*dns.Msg, error)

// ServeDNS implements [dns.Handler]. If the Responder returns an error, the query gets no response.
func (r Responder) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	peer := w.RemoteAddr()
	if response, err := r(peer.Network(), query, path.AddrPort(peer)); err == nil {
		_ = w.WriteMsg(response)
	}
}

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
// It returns nil if ctx was canceled.
func (l *Listener) Serve(ctx context.Context, respond Responder) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { _, _ = l.udp.Close(), l.tcp.Close() }()
	for _, s := range []*dns.Server{
		{PacketConn: l.udp, UDPSize: maxDatagram, Handler: respond},
		{Listener: l.tcp, Handler: respond},
	} {
		go func() { cancel(s.ActivateAndServe()) }()
	}
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
