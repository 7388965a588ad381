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

// passthrough6 is the source of the proxy's inbound connections in IPv6; only the rules' routing
// makes it the pod's.
var passthrough6 = rules.PassthroughIPv6()

// ProxyOptions say how the pod's proxy runs.
type ProxyOptions struct {
	Owner rules.Owner
	// Transparent makes the inbound listener transparent, as TPROXY needs it.
	Transparent bool
	// Forward makes the proxy ask the original destination itself, and answer what it was answered:
	// outbound as its own user, inbound from 127.0.0.6 or ::6.
	Forward bool
	// Outbound, Inbound and Tunnel are the ports of these listeners; 0 for Istio's.
	Outbound, Inbound, Tunnel uint16
}

// forwardTimeout is longer than any caller waits.
const forwardTimeout = 10 * time.Second

// proxy stands for Envoy and the agent beside it.
type proxy struct {
	*server
	options ProxyOptions
	names   map[uint16]Name // of the ports
}

// StartProxy starts the pod's proxy and the agent beside it. They listen on their ports of every
// address.
func (b *Bed) StartProxy(o ProxyOptions) error {
	p := &proxy{options: o, names: map[uint16]Name{
		cmp.Or(o.Outbound, rules.DefaultProxyPort):         Outbound,
		cmp.Or(o.Inbound, rules.DefaultInboundCapturePort): Inbound,
		cmp.Or(o.Tunnel, rules.DefaultTunnelPort):          Tunnel,
		rules.DNSPort: DNS,
		15020:         Agent,
		15021:         Health,
		15090:         Metrics,
	}}
	p.server = newServer(b.identity(o.Owner), p.greet)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.proxy != nil {
		return errors.New("start the proxy: the bed is closed or has one")
	}
	if err := p.listen(); err != nil {
		p.close()
		return fmt.Errorf("start the proxy: %w", err)
	}
	b.proxy = p
	return nil
}

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

// mustServe is serve where another's listener is an error.
func (p *proxy) mustServe(e endpoint, options ...socket.Option) error {
	err := p.serve(e, options...)
	if err == nil && !p.ports[e] {
		err = fmt.Errorf("listen on port %d: %w", e.port, unix.EADDRINUSE)
	}
	return err
}

// close ends the proxy; nil has none.
func (p *proxy) close() {
	if p != nil {
		p.server.close()
	}
}

// greet answers by the name of the port, or forwards.
func (p *proxy) greet(e endpoint, h Hop) (responder, error) {
	h.By = p.names[e.port]
	_, own := p.names[h.To.Port()]
	if !p.options.Forward || e.protocol != rules.TCP || own || h.By != Outbound && h.By != Inbound {
		return here(h), nil
	}
	call := Call{Network: "tcp", To: h.To, Timeout: forwardTimeout}
	if h.By == Inbound {
		call.Local = netip.AddrPortFrom(rules.PassthroughIPv4(), 0)
		if h.To.Addr().Is6() {
			call.Local = netip.AddrPortFrom(rules.PassthroughIPv6(), 0)
		}
	}
	upstream, err := p.who.open(call, rules.TCP)
	if err != nil {
		return nil, err
	}
	return forwarder{h, upstream}, nil
}

// forwarder passes requests on.
type forwarder struct {
	here     Hop
	upstream *Conn
}

func (f forwarder) respond(string) []Hop {
	a := f.upstream.Ask()
	if a.Outcome != Answered {
		return []Hop{f.here}
	}
	return append([]Hop{f.here, a.Hop}, a.Upstream...)
}

func (f forwarder) close() { f.upstream.Close() }
