package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/socket"
	"github.com/sluice-mesh/sluice/rules"
)

// ProxyOptions configure the pod's proxy.
type ProxyOptions struct {
	Owner rules.Owner
	// Transparent makes the inbound listener transparent, which TPROXY requires.
	Transparent bool
	// Forward makes the proxy forward requests to the original destination and return the answers.
	// The sockets of the forwarded connections belong to Owner. The inbound listener forwards from
	// the source address 127.0.0.6 or ::6.
	Forward bool
	// Outbound, Inbound and Tunnel are the ports of these listeners. 0 means Istio's default.
	Outbound, Inbound, Tunnel uint16
}

// forwardTimeout is the time that a forwarding proxy waits for an answer. It is longer than
// DefaultTimeout: a caller with the default timeout gets no answer if the upstream does not answer.
const forwardTimeout = 10 * time.Second

// proxy is a stub of Envoy and Istio's agent.
type proxy struct {
	*server
	options ProxyOptions
	names   map[uint16]Name // listeners by port
}

// StartProxy starts the pod's proxy and its agent. They listen on their ports, on every address.
func (n *Network) StartProxy(o ProxyOptions) error {
	p := &proxy{options: o, names: map[uint16]Name{
		cmp.Or(o.Outbound, rules.DefaultProxyPort):         Outbound,
		cmp.Or(o.Inbound, rules.DefaultInboundCapturePort): Inbound,
		cmp.Or(o.Tunnel, rules.DefaultTunnelPort):          Tunnel,
		rules.DNSPort: DNS,
		15020:         Agent,
		15021:         Health,
		15090:         Metrics,
	}}
	p.server = newServer(n.identity(o.Owner), p.accept)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.proxy != nil {
		return errors.New("start the proxy: the network is closed or has a proxy")
	}
	if err := p.listen(); err != nil {
		p.close()
		return fmt.Errorf("start the proxy: %w", err)
	}
	n.proxy = p
	return nil
}

// listen opens the listeners of the proxy and its agent.
func (p *proxy) listen() error {
	for port, name := range p.names {
		var options []socket.Option
		if name == Inbound && p.options.Transparent {
			options = append(options, socket.Transparent(rules.IPv6))
		}
		if err := p.mustServe(endpoint{rules.TCP, port}, options...); err != nil {
			return err
		}
	}
	return p.mustServe(endpoint{rules.UDP, rules.DNSPort})
}

// mustServe is like serve, but returns EADDRINUSE if a socket of another server uses the port.
func (p *proxy) mustServe(e endpoint, options ...socket.Option) error {
	err := p.serve(e, options...)
	if err == nil && !p.endpoints[e] {
		err = fmt.Errorf("listen on port %d: %w", e.port, unix.EADDRINUSE)
	}
	return err
}

// close stops the proxy. Closing a nil proxy does nothing.
func (p *proxy) close() {
	if p != nil {
		p.server.close()
	}
}

// accept is the [acceptFunc] of the proxy: it answers with the name of the listener, or forwards.
func (p *proxy) accept(e endpoint, h Hop) (responder, error) {
	h.By = p.names[e.port]
	_, isProxyPort := p.names[h.To.Port()]
	if !p.options.Forward || e.protocol != rules.TCP || isProxyPort ||
		h.By != Outbound && h.By != Inbound {
		return lastHop(h), nil
	}
	call := Call{Network: "tcp", To: h.To, Timeout: forwardTimeout}
	if h.By == Inbound {
		call.Local = netip.AddrPortFrom(rules.PassthroughIPv4(), 0)
		if h.To.Addr().Is6() {
			call.Local = netip.AddrPortFrom(rules.PassthroughIPv6(), 0)
		}
	}
	upstream, err := p.identity.open(call, rules.TCP)
	if err != nil {
		return nil, err
	}
	return forwarder{h, upstream}, nil
}

// forwarder forwards requests to the upstream and adds the proxy's hop to the answers.
type forwarder struct {
	hop      Hop
	upstream *Conn
}

func (f forwarder) respond() []Hop {
	a := f.upstream.Ask()
	if a.Outcome != Answered {
		return []Hop{f.hop}
	}
	return append([]Hop{f.hop, a.Hop}, a.Upstream...)
}

func (f forwarder) close() { f.upstream.Close() }
