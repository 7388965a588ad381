package ztunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/rules"
)

// dialTimeout limits connecting, and the time until the header of an HBONE request has arrived.
const dialTimeout = 5 * time.Second

// dial connects from the namespace of the pod, with ztunnel's mark. If from is not zero, it is the
// source address.
func (p *pod) dial(network string, from netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: dialTimeout, Control: proxy.Marked}
	if from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	err = p.ns.Do(func() error {
		conn, err = dialer.Dial(network, to.String())
		return err
	})
	return conn, err
}

// outbound forwards a captured connection from the pod.
func (p *pod) outbound(ctx context.Context, down *net.TCPConn) error {
	to, err := proxy.Original(down)
	if err != nil {
		return err
	}
	if to.Port() == rules.DefaultProxyPort {
		return errors.New("connection to ztunnel itself")
	}
	hop := path.Hop{
		Proxy: p.name, Direction: path.Outbound, Peer: path.AddrPort(down.RemoteAddr()),
		Original: to,
	}
	if p.z.inMesh(to.Addr()) {
		return p.tunnel(ctx, down, hop)
	}
	up, err := p.dial("tcp", netip.Addr{}, to)
	if err != nil {
		return err
	}
	return proxy.Exchange(down, down.CloseWrite, up, hop)
}

// inbound forwards a captured connection to the pod.
func (p *pod) inbound(_ context.Context, down *net.TCPConn) error {
	to, err := proxy.Original(down)
	if err != nil {
		return err
	}
	if to.Port() == rules.DefaultInboundCapturePort {
		return errors.New("connection to ztunnel itself")
	}
	hop := path.Hop{
		Proxy: p.name, Direction: path.Inbound, Peer: path.AddrPort(down.RemoteAddr()),
		Original: to,
	}
	up, err := p.dial("tcp", hop.Peer.Addr(), to)
	if err != nil {
		return err
	}
	return proxy.Exchange(down, down.CloseWrite, up, hop)
}

// newTransport returns the HBONE client. It uses one connection for all tunnels to a pod.
func (p *pod) newTransport() *http2.Transport {
	return &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(
			_ context.Context, network, addr string, _ *tls.Config,
		) (net.Conn, error) {
			to, err := netip.ParseAddrPort(addr)
			if err != nil {
				return nil, err
			}
			return p.dial(network, netip.Addr{}, to)
		},
	}
}

// tunnel forwards a connection over HBONE.
func (p *pod) tunnel(ctx context.Context, down *net.TCPConn, hop path.Hop) error {
	body, sent := io.Pipe()
	defer func() { _ = body.Close() }()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			hop.Upstream = path.AddrPort(info.Conn.LocalAddr())
		},
	})
	peer := netip.AddrPortFrom(hop.Original.Addr(), rules.DefaultTunnelPort)
	request := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Scheme: "http", Host: peer.String()},
		Host: hop.Original.String(), Body: body, Header: http.Header{},
	}).WithContext(ctx)
	response, err := p.hbone.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("HBONE to %s: %w", peer, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("HBONE to %s: %s", peer, response.Status)
	}
	received := make(chan error, 1)
	go func() {
		_, err := io.Copy(down, response.Body)
		_ = down.CloseWrite()
		received <- err
	}()
	err = proxy.CopyWithHop(sent, down, hop)
	_ = sent.CloseWithError(err)
	return errors.Join(err, <-received)
}

// newServer returns the HBONE server.
func (p *pod) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols: protocols, ReadHeaderTimeout: dialTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status := p.connect(w, r); status != 0 {
				w.WriteHeader(status)
			}
		}),
	}
}

// connect serves the tunnel of a CONNECT request until its end and returns 0, or returns the HTTP
// status with which the request is rejected.
func (p *pod) connect(w http.ResponseWriter, r *http.Request) (status int) {
	to, err := netip.ParseAddrPort(r.Host)
	peer, peerErr := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case r.Method != http.MethodConnect:
		return http.StatusMethodNotAllowed
	case err != nil || peerErr != nil || !slices.Contains(p.addresses, to.Addr()):
		return http.StatusBadRequest
	}
	peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	up, err := p.dial("tcp", peer.Addr(), to)
	if err != nil {
		return http.StatusServiceUnavailable
	}
	w.WriteHeader(http.StatusOK)
	stream := stream{r.Body, w, http.NewResponseController(w)}
	_ = stream.controller.Flush()
	hop := path.Hop{Proxy: p.name, Direction: path.Inbound, Peer: peer, Original: to}
	// The server ends the stream to the client when this function returns.
	_ = proxy.Exchange(stream, func() error { return nil }, up, hop)
	return 0
}

// A stream is the server side of a tunnel.
type stream struct {
	io.Reader
	w          http.ResponseWriter
	controller *http.ResponseController
}

func (s stream) Write(data []byte) (int, error) {
	n, err := s.w.Write(data)
	if err == nil {
		err = s.controller.Flush()
	}
	return n, err
}

// forwardQuery forwards a DNS query to the resolver, and adds the name of the pod to the response.
func (p *pod) forwardQuery(network string, query *dns.Msg, _ netip.AddrPort) (*dns.Msg, error) {
	to, err := netip.ParseAddrPort(p.z.Resolver)
	if err != nil {
		return nil, err
	}
	conn, err := p.dial(network, netip.Addr{}, to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return name.Forward(conn, query, p.name)
}
