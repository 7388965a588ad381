package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

const (
	// sampleID is a user and group ID of the application in samples.
	sampleID = 65533
	// ephemeralPort is the source port of connections in samples.
	ephemeralPort = 40000
)

// A sample is a packet of a typical connection.
type sample struct {
	description string
	packet      rules.Packet
	// isLater is set for a packet that follows the first packet of a connection that the proxy
	// accepts or opens. Only whether it is dropped is of interest.
	isLater bool
}

// samples returns typical packets of a mesh in the captured families.
func (d *diagnosis) samples() []sample {
	proxy := rules.Owner{UID: d.redirect.ProxyUIDs[0].First, GID: d.redirect.ProxyGIDs[0].First}
	application := rules.Owner{UID: sampleID, GID: sampleID}
	if !d.redirect.OwnerGroups.All && len(d.redirect.OwnerGroups.IDs) > 0 {
		application.GID = d.redirect.OwnerGroups.IDs[0].First
	}
	var samples []sample
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if f == rules.IPv6 && !d.redirect.IPv6 {
			continue
		}
		pod := d.podIP(f)
		if d.ambient != nil {
			samples = append(samples, d.ambientSamples(netip.AddrPortFrom(pod, 8080),
				netip.AddrPortFrom(documentationAddr(f), ephemeralPort))...)
			samples = append(samples, laterSamples(pod, documentationAddr(f), application, listener{
				application, rules.ZtunnelMark, rules.DefaultProxyPort, rules.DefaultInboundCapturePort, true,
			})...)
			continue
		}
		endpoint := netip.AddrPortFrom
		out := func(protocol rules.Protocol, owner rules.Owner, to netip.AddrPort) rules.Packet {
			return sentPacket(protocol, owner, pod, to)
		}
		remote := documentationAddr(f)
		toOwnPod := out(rules.TCP, proxy, endpoint(pod, 8080))
		toOwnPod.OutInterface = lo
		samples = append(samples,
			sample{
				description: "the application's outbound connections",
				packet:      out(rules.TCP, application, endpoint(d.destination(f), 80)),
			},
			sample{
				description: "the application's DNS queries",
				packet:      out(rules.UDP, application, endpoint(d.nameserver(f), 53)),
			},
			sample{
				description: "the proxy's outbound connections",
				packet:      out(rules.TCP, proxy, endpoint(remote, 80)),
			},
			sample{description: "the proxy's calls to its own pod", packet: toOwnPod},
			sample{description: "inbound connections", packet: rules.Packet{
				Hook: rules.Prerouting, InInterface: "eth0", Protocol: rules.TCP, Flags: rules.SYN,
				Source: endpoint(remote, ephemeralPort), Destination: endpoint(pod, 8080),
			}},
		)
		inbound := d.redirect.InboundCapturePort
		if d.usesTProxy() {
			inbound = 8080 // TPROXY keeps the destination
		}
		samples = append(samples, laterSamples(pod, d.destination(f), application,
			listener{proxy, 0, d.redirect.ProxyPort, inbound, d.usesTProxy()})...)
	}
	return samples
}

// A listener describes the sockets of the proxy or of ztunnel.
type listener struct {
	owner rules.Owner
	mark  uint32 // of outgoing packets
	// outbound and inbound are the ports of the sockets of captured connections.
	outbound, inbound uint16
	// keepsClient is set if connections to the application have the client's address.
	keepsClient bool
}

// laterSamples returns packets that follow the first packets of connections of a pod: of a captured
// connection in each direction, and of a connection that the proxy opens.
func laterSamples(pod, remote netip.Addr, application rules.Owner, proxy listener) []sample {
	client, server := netip.AddrPortFrom(pod, ephemeralPort), netip.AddrPortFrom(remote, 80)
	peer, service := netip.AddrPortFrom(remote, ephemeralPort), netip.AddrPortFrom(pod, 8080)
	loopback := netip.MustParseAddr(rules.ByFamily(rules.FamilyOf(pod), "127.0.0.1", "::1"))
	outbound := netip.AddrPortFrom(loopback, proxy.outbound)
	inbound := netip.AddrPortFrom(pod, proxy.inbound)
	later := func(description, device string, from, to netip.AddrPort, isReply bool) sample {
		p := rules.Packet{
			Hook: rules.Prerouting, InInterface: device, Protocol: rules.TCP, Flags: rules.PSH | rules.ACK,
			Source: from, Destination: to, State: rules.Established, Reply: isReply,
			Status: rules.StatusSeenReply | rules.StatusConfirmed,
		}
		if isReply {
			p.Flags = rules.SYN | rules.ACK
		}
		return sample{description, p, true}
	}
	sent := func(s sample, owner rules.Owner, mark uint32) sample {
		s.packet.Hook, s.packet.Owner, s.packet.Mark = rules.Output, &owner, mark
		s.packet.InInterface, s.packet.OutInterface = "", s.packet.InInterface
		return s
	}
	applicationDevice, toProxy := "eth0", peer // connection marks route the answers to lo
	if !proxy.keepsClient {
		passthrough := rules.ByFamily(rules.FamilyOf(pod), rules.PassthroughIPv4(), rules.PassthroughIPv6())
		applicationDevice, toProxy = lo, netip.AddrPortFrom(passthrough, ephemeralPort)
	}
	const ofOutbound, ofInbound = "data of captured outbound connections", "data of captured inbound connections"
	const toApplication = "the proxy's answers to captured outbound connections"
	return []sample{
		sent(later(ofOutbound, "eth0", client, server, false), application, 0),
		later(ofOutbound, lo, client, outbound, false),
		sent(later(toApplication, lo, outbound, client, true), proxy.owner, proxy.mark),
		later(toApplication, lo, server, client, true),
		later(ofInbound, "eth0", peer, service, false),
		sent(later("the proxy's answers to captured inbound connections", "eth0", inbound, peer, true),
			proxy.owner, proxy.mark),
		sent(later("the application's answers to the proxy", applicationDevice, service, toProxy, true), application, 0),
		sent(later("data of the proxy's outbound connections", "eth0", client, server, false),
			proxy.owner, proxy.mark),
		later("answers to the proxy's outbound connections", "eth0", server, client, true),
	}
}

// sentPacket returns the first packet that the owner sends from an address.
func sentPacket(
	protocol rules.Protocol, owner rules.Owner, from netip.Addr, to netip.AddrPort,
) rules.Packet {
	return rules.Packet{
		Hook: rules.Output, OutInterface: "eth0", Protocol: protocol, Owner: &owner,
		Source: netip.AddrPortFrom(from, ephemeralPort), Destination: to,
		Flags: map[rules.Protocol]rules.TCPFlags{rules.TCP: rules.SYN}[protocol],
	}
}

// documentationAddr returns an address for documentation (RFC 5737, RFC 3849).
func documentationAddr(f rules.Family) netip.Addr {
	return netip.MustParseAddr(rules.ByFamily(f, "198.51.100.1", "2001:db8::1"))
}

// podIP returns an address of the pod, or an address for documentation if the pod has none.
func (d *diagnosis) podIP(f rules.Family) netip.Addr {
	for _, i := range d.Interfaces {
		for _, a := range i.Addrs {
			if i.Name != lo && rules.FamilyOf(a) == f && a.IsGlobalUnicast() {
				return a
			}
		}
	}
	return map[rules.Family]netip.Addr{
		rules.IPv4: netip.MustParseAddr("203.0.113.5"),
		rules.IPv6: netip.MustParseAddr("2001:db8:5::5"),
	}[f]
}

// destination returns an address of an included prefix, or an address for documentation.
func (d *diagnosis) destination(f rules.Family) netip.Addr {
	for _, p := range d.redirect.OutboundCIDRs.Prefixes {
		if rules.FamilyOf(p.Addr()) == f {
			return p.Addr()
		}
	}
	return documentationAddr(f)
}

// nameserver returns a nameserver of the parameters, or an address for documentation.
func (d *diagnosis) nameserver(f rules.Family) netip.Addr {
	for _, s := range d.redirect.DNS.Servers {
		if rules.FamilyOf(s) == f {
			return s
		}
	}
	return documentationAddr(f)
}

// checkConflicts compares the outcome of each sample with Sluice's rules alone to its outcome with
// Sluice's rules and the foreign rules together.
func (d *diagnosis) checkConflicts() {
	foreign, legacy := d.foreignTables(), d.foreignLegacy()
	if d.TablesErr != nil || len(foreign) == 0 && len(legacy) == 0 {
		return
	}
	together := rules.Ruleset{
		Tables: append(d.withCompiled(foreign), legacy...), Routing: d.compiled.Routing,
	}
	foundConflict := false
	budget := d.Budget.From(time.Now()) // for all samples together
	for _, s := range d.samples() {
		alone := diff.ExplainWithin(&d.compiled, s.packet, budget).Outcome
		trace := diff.ExplainWithin(&together, s.packet, budget)
		if trace.Exhausted != "" {
			d.add("rules", Warning,
				fmt.Sprintf("it is unknown whether foreign rules change the outcome of %s: %s",
					s.description, trace.Exhausted),
				"run rules explain --live to follow one connection, or set a larger --max-time or --max-memory")
			return
		}
		if s.isLater && trace.Outcome.Dropped == alone.Dropped {
			continue
		}
		if d.sameCapture(alone, trace.Outcome) {
			foundConflict = d.checkConnection(s, alone, trace) || foundConflict
			continue
		}
		if d.bypasses() && alone.Captured() && !trace.Outcome.Dropped {
			continue // a bypass that checkForeignEffect reports
		}
		foundConflict = true
		mustPass := alone.Captured() || s.isLater
		severity, next := Warning,
			"remove that rule if only the mesh must handle these connections"
		switch {
		case trace.Outcome.Undecided != "":
			next = "check that rule; run rules validate to test it with connections"
		case trace.DroppedWithoutRule() != nil:
			next = "accept these connections in that chain, or change its policy"
			if mustPass {
				severity = Problem
			}
		case d.isIstio(lastForeign(trace, anyStep)):
			severity, next = d.istioSeverity(), removeIstio
			if mustPass {
				severity = Problem
			}
		case mustPass:
			severity, next = Problem, "remove that rule, or move its chain after Sluice's"
		}
		expected := fmt.Sprintf("with these parameters alone the packet %s; ", d.predicate(alone))
		if s.isLater {
			expected = ""
		}
		d.add("rules", severity, fmt.Sprintf("%s (%s): %swith foreign rules %s", s.description, s.packet,
			expected, d.actualText(trace)), next)
	}
	if !foundConflict && !d.bypasses() {
		d.add("rules", OK, "foreign rules do not affect the tested connections at prerouting, output"+
			" and postrouting", "")
	}
}

// checkConnection reports that foreign rules change the connection of a packet that is captured as
// desired: they disable conntrack, assign another zone to it, or translate its source. alone is the
// outcome of the packet with Sluice's rules alone. checkConnection reports whether it found a
// conflict.
func (d *diagnosis) checkConnection(s sample, alone rules.Outcome, trace rules.Trace) bool {
	var change string
	var isCause func(rules.Action) bool
	severity, next := Warning, "run rules validate to test it with connections"
	switch o := trace.Outcome; {
	case alone.Captured() && o.Untracked && !alone.Untracked:
		change, isCause = "untracked%s: its connection has no state, and the proxy loses its packets", hasType[rules.Notrack]
		severity, next = Problem, "remove that rule"
	case alone.Captured() && alone.Zone != o.Zone:
		change = fmt.Sprintf("conntrack zone %d%%s: the answers are lost unless they are in the same zone", o.Zone)
		isCause = isSetZone
	case o.SNATAddr != alone.SNATAddr && !o.SNATAddr.IsLoopback() &&
		!slices.Contains(d.podAddresses(rules.FamilyOf(o.SNATAddr)), o.SNATAddr):
		change = fmt.Sprintf("source %s%%s: the answers are lost unless they return to this address", o.SNATAddr)
		isCause = hasType[rules.SNATTo]
	default:
		return false
	}
	step := lastForeign(trace, func(s *rules.Step) bool { return slices.ContainsFunc(s.Rule().Actions, isCause) })
	d.add("rules", severity, fmt.Sprintf("%s (%s): with foreign rules the packet %s, %s", s.description, s.packet,
		d.predicate(trace.Outcome), fmt.Sprintf(change, by(step))), next)
	return true
}

// withCompiled returns the foreign tables together with the compiled table, which takes the
// position of Sluice's table. If Sluice's table does not exist, the compiled table is first, like a
// new table.
func (d *diagnosis) withCompiled(foreign []rules.Table) []rules.Table {
	if d.sluiceTable() == nil {
		return slices.Concat(d.compiled.Tables, foreign)
	}
	tables := slices.Clone(d.Tables)
	for i := range tables {
		if compat.IsSluiceTable(&tables[i]) {
			tables[i] = d.compiled.Tables[0]
		}
	}
	return tables
}

// sameCapture reports whether two outcomes capture the packet in the same way. It ignores marks and
// zones, except the mark on connections whose replies the rules route to lo.
func (d *diagnosis) sameCapture(a, b rules.Outcome) bool {
	return a.Dropped == b.Dropped && a.Redirect == b.Redirect && a.TProxy == b.TProxy &&
		b.Undecided == "" && d.connectionMark(a) == d.connectionMark(b)
}

// connectionMark returns the mark of the connection if the rules route the replies of connections
// with this mark to lo. Otherwise it returns 0.
func (d *diagnosis) connectionMark(o rules.Outcome) uint32 {
	if mark := d.replyMark(); o.ConntrackMark == mark {
		return mark
	}
	return 0
}

// replyMark returns the mark of connections whose replies the rules route to lo, or 0.
func (d *diagnosis) replyMark() uint32 {
	switch {
	case d.ambient != nil:
		return rules.AmbientMark
	case d.usesTProxy():
		return d.redirect.TProxyMark
	}
	return 0
}

// outcomeText describes an outcome, without marks and zones that sameCapture ignores.
func (d *diagnosis) outcomeText(o rules.Outcome) string {
	o.Mark, o.ConntrackMark, o.Zone = 0, d.connectionMark(o), 0
	if !o.Captured() && !o.Dropped && o.Undecided == "" && o.ConntrackMark == 0 {
		return "not captured"
	}
	return o.String()
}

// predicate returns [diagnosis.outcomeText] with a verb, such as "is dropped".
func (d *diagnosis) predicate(o rules.Outcome) string {
	text := d.outcomeText(o)
	if strings.HasPrefix(text, "goes ") {
		return text
	}
	return "is " + text
}

// actualText describes the outcome of the packet, and the chain whose policy dropped the packet or
// the last matching rule of a foreign table.
func (d *diagnosis) actualText(t rules.Trace) string {
	text := "it " + d.predicate(t.Outcome)
	if note := t.DroppedWithoutRule(); note != nil {
		return fmt.Sprintf("%s: %s", text, note)
	}
	return text + by(lastForeign(t, anyStep))
}

// lastForeign returns the last matching rule of a foreign table for which isWanted returns true, or
// nil.
func lastForeign(t rules.Trace, isWanted func(*rules.Step) bool) *rules.Step {
	return lastStep(t, func(s *rules.Step) bool {
		return !compat.IsSluiceTable(s.Table) && isWanted(s)
	})
}

// isIstio reports whether the rule of the step is in a table with rules of Istio.
func (d *diagnosis) isIstio(step *rules.Step) bool {
	return step != nil && slices.ContainsFunc(slices.Concat(d.Tables, d.foreignLegacy()), func(t rules.Table) bool {
		return t.Family == step.Table.Family && t.Name == step.Table.Name && istioProgram(&t) != ""
	})
}
