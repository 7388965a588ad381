package validation

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// planZtunnelCalls adds connections of ztunnel to the application, with the address of a client as
// source. The replies to that address must stay in the pod, because the rules mark the connection
// and the policy route leads the replies back.
func (p *planner) planZtunnelCalls(f rules.Family) {
	for _, a := range p.podIPs(f) {
		t := newTCPProbe(ZtunnelCalls, fmt.Sprintf("ztunnel calls the application as a client, %s", a))
		t.transparent = true
		t.Expected = fmt.Sprintf("arrives at %s itself, and the replies come back to ztunnel",
			netip.AddrPortFrom(a, p.options.Port))
		t.packet.Hook, t.packet.OutInterface, t.packet.Owner = rules.Output, lo, &p.self
		t.packet.Mark = rules.ZtunnelMark
		t.packet.Source = netip.AddrPortFrom(testNets(f)[0], 0)
		t.packet.Destination = netip.AddrPortFrom(a, p.options.Port)
		_, _, err := p.route(t.packet.Source.Addr())
		switch {
		case !p.transparent:
			t.skip("marked packets and transparent sockets need CAP_NET_ADMIN", runOnNode)
		case err != nil: // the kernel needs a route for a reply even before rules mark the reply
			t.skip(fmt.Sprintf("the namespace has no route to %s: %v", t.packet.Source.Addr(), err),
				"run it when the pod's network is set up")
		}
		p.add(t)
	}
}

// planHBONE adds a connection from another host to the tunnel port. The rules must not capture it.
// inbound is the probe of a captured connection from the same host.
func (p *planner) planHBONE(inbound probe) {
	t := inbound
	t.Name = "inbound HBONE, " + familyName(inbound.packet.Family())
	t.Expected = ""
	t.listenerExpected = p.running
	pod := inbound.packet.Destination.Addr()
	t.packet.Destination = netip.AddrPortFrom(pod, p.options.Redirect.TunnelPort)
	t.control = netip.AddrPortFrom(pod, p.options.Redirect.InboundCapturePort)
	p.add(t)
}
