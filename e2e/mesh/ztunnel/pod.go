package ztunnel

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/e2e/mesh/name"
	"github.com/sluice-mesh/sluice/e2e/mesh/proxy"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A pod is a pod that the ztunnel serves.
type pod struct {
	z         *ztunnel
	name      string
	ns        *netns.NS
	addresses []netip.Addr
	hbone     *http2.Transport
	server    *http.Server

	listeners []net.Listener     // for captured connections and HBONE
	stop      context.CancelFunc // ends DNS servers and tunnels
	servers   sync.WaitGroup     // goroutines that accept connections or respond to DNS queries

	mu          sync.Mutex
	connections map[net.Conn]struct{} // captured connections
	closed      bool                  // no further connections are accepted
	forwarders  sync.WaitGroup        // goroutines that forward captured connections
}

// serve opens the listeners in the namespace of a pod, and returns the served pod.
func (z *ztunnel) serve(ctx context.Context, podName string, ns *netns.NS) (*pod, error) {
	ns, err := netns.FromHandle(vishnetns.NsHandle(ns.FD()))
	if err != nil {
		return nil, err
	}
	// The cancellation of ctx does not affect the listeners, because Run drains the pod after it.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &pod{
		z: z, name: podName, ns: ns, stop: stop, connections: map[net.Conn]struct{}{},
	}
	p.hbone = p.newTransport()
	p.server = p.newServer()
	if err := ns.Do(func() error { return p.listen(ctx) }); err != nil {
		p.close()
		p.drain()
		return nil, err
	}
	return p, nil
}

// listen opens the listeners and starts their servers. It must be called in the namespace of the
// pod.
func (p *pod) listen(ctx context.Context) error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLoopback() {
			p.addresses = append(p.addresses, prefix.Addr())
		}
	}
	config := net.ListenConfig{Control: setListenOptions}
	for network, host := range map[string]string{"tcp4": "0.0.0.0", "tcp6": "::"} {
		for port, serve := range map[uint16]func(net.Listener){
			rules.DefaultProxyPort:          func(l net.Listener) { p.accept(ctx, l, p.outbound) },
			rules.DefaultInboundCapturePort: func(l net.Listener) { p.accept(ctx, l, p.inbound) },
			rules.DefaultTunnelPort:         func(l net.Listener) { _ = p.server.Serve(l) },
		} {
			l, err := config.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port))))
			if network == "tcp6" && proxy.IsNoIPv6(err) {
				continue
			}
			if err != nil {
				return err
			}
			p.listeners = append(p.listeners, l)
			p.servers.Go(func() { serve(l) })
		}
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		s, err := name.Listen(ctx, config, net.JoinHostPort(host, strconv.Itoa(rules.DNSPort)))
		if host == "::1" && proxy.IsNoIPv6(err) {
			continue
		}
		if err != nil {
			return err
		}
		p.servers.Go(func() { _ = s.Serve(ctx, p.forwardQuery) })
	}
	return nil
}

// setListenOptions sets ztunnel's socket options for listeners. With SO_REUSEPORT, another ztunnel
// can listen while this one drains its connections.
func setListenOptions(network, address string, c syscall.RawConn) error {
	err := proxy.Marked(network, address, c)
	return errors.Join(err, c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}))
}

// accept accepts connections and forwards each with forward, until the listener is closed or fails.
func (p *pod) accept(
	ctx context.Context, l net.Listener, forward func(context.Context, *net.TCPConn) error,
) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Printf("pod %s: %v", p.name, err)
			return
		}
		if !p.track(conn) {
			_ = conn.Close()
			return
		}
		go func() {
			defer p.forwarders.Done()
			defer p.untrack(conn)
			if err := forward(ctx, conn.(*net.TCPConn)); err != nil {
				// The client gets a reset, as it would without ztunnel.
				_ = conn.(*net.TCPConn).SetLinger(0)
				log.Printf("pod %s: connection of %s: %v", p.name, conn.RemoteAddr(), err)
			}
			_ = conn.Close()
		}()
	}
}

// track adds a connection that drain waits for. It returns false if no further connections are
// accepted.
func (p *pod) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.connections[conn] = struct{}{}
	p.forwarders.Add(1)
	return true
}

func (p *pod) untrack(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.connections, conn)
}

// close closes the listeners, so that no further connections are accepted. DNS queries are answered
// until the end of drain.
func (p *pod) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// drain waits for the end of open connections, up to the time limit. Then it closes the connections
// that are still open, and the servers.
func (p *pod) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), p.z.Drain)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		p.forwarders.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		p.mu.Lock()
		for conn := range p.connections {
			_ = conn.Close()
		}
		p.mu.Unlock()
	}
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	p.stop()
	p.hbone.CloseIdleConnections()
	p.servers.Wait()
	_ = p.ns.Close()
}
