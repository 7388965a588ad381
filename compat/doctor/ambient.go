package doctor

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// DiagnoseAmbient returns the findings for a pod in ambient mode, the most severe first. It panics
// if the parameters are invalid (see [rules.Ambient.Validate]).
func DiagnoseAmbient(f Facts, a rules.Ambient) []Finding {
	d := &diagnosis{Facts: f, redirect: a.AsRedirect(), ambient: &a}
	return d.run()
}

// A markedRoute is the policy route for the packets with the mark of the redirection.
type markedRoute struct {
	mark, mask, table uint32
	markOwner         string // in the possessive form, for messages: "TPROXY's"
	used              bool   // whether the redirection has the route
	// alternative is a second remedy if another policy rule precedes Sluice's, as a continuation of
	// the first remedy. It may be empty.
	alternative string
}

// markedRoute returns the policy route of the redirection. In sidecar mode only TPROXY uses it.
func (d *diagnosis) markedRoute() markedRoute {
	if d.ambient != nil {
		return markedRoute{
			mark: rules.AmbientMark, mask: rules.AmbientMarkMask, table: rules.AmbientRouteTable,
			markOwner: "ambient mode's", used: true,
		}
	}
	return markedRoute{
		mark: d.redirect.TProxyMark, mask: ^uint32(0), table: d.redirect.TProxyRouteTable,
		markOwner: "TPROXY's", used: d.usesTProxy(), alternative: ", or choose another mark",
	}
}

// ambientSamples returns typical packets of a pod in ambient mode. pod is an address and port of
// the application, and other is an address and port of a peer in the same family.
func (d *diagnosis) ambientSamples(pod, other netip.AddrPort) []sample {
	out := func(protocol rules.Protocol, mark uint32, port uint16) rules.Packet {
		p := sentPacket(protocol, rules.Owner{UID: sampleID, GID: sampleID}, pod.Addr(),
			netip.AddrPortFrom(other.Addr(), port))
		p.Mark = mark
		return p
	}
	in := rules.Packet{
		Hook: rules.Prerouting, InInterface: "eth0", Protocol: rules.TCP, Flags: rules.SYN,
		Source: other, Destination: pod,
	}
	hbone := in
	hbone.Destination = netip.AddrPortFrom(pod.Addr(), rules.DefaultTunnelPort)
	return []sample{
		{description: "the application's outbound connections", packet: out(rules.TCP, 0, 80)},
		{description: "the application's DNS queries", packet: out(rules.UDP, 0, 53)},
		{description: "ztunnel's outbound connections", packet: out(rules.TCP, rules.ZtunnelMark, 80)},
		{description: "inbound connections", packet: in},
		{description: "inbound HBONE connections", packet: hbone},
	}
}
