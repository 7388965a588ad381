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
	// servicePort is the port of the application in samples.
	servicePort = 8080
)

// A sample is a packet of a typical connection.
type sample struct {
	description string
	packet      rules.Packet
	// meets is nil for the first packet of a connection. For a later packet it reports whether the
	// packet has this form when it traverses a base chain; only whether it is dropped there is of
	// interest. isTranslated is set if the connection is translated, which the packet does not
	// state: rules that match it cannot be evaluated.
	meets        func(*rules.Base) bool
	isTranslated bool
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
		pod, remote := d.podIP(f), documentationAddr(f)
		if d.ambient != nil {
			samples = append(samples, d.ambientSamples(netip.AddrPortFrom(pod, servicePort),
				netip.AddrPortFrom(remote, ephemeralPort))...)
			samples = append(samples, d.laterSamples(pod, remote, application, listener{
				owner: rules.Owner{}, mark: rules.ZtunnelMark, outbound: rules.DefaultProxyPort,
				inbound: rules.DefaultInboundCapturePort, keepsClient: true,
			})...)
			continue
		}
		endpoint := netip.AddrPortFrom
		out := func(protocol rules.Protocol, owner rules.Owner, to netip.AddrPort) rules.Packet {
			return sentPacket(protocol, owner, pod, to)
		}
		toOwnPod := out(rules.TCP, proxy, endpoint(pod, servicePort))
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
				Source: endpoint(remote, ephemeralPort), Destination: endpoint(pod, servicePort),
			}},
		)
		samples = append(samples, d.laterSamples(pod, d.destination(f), application, listener{
			owner: proxy, outbound: d.redirect.ProxyPort, inbound: d.redirect.InboundCapturePort,
			isTransparent: d.usesTProxy(), keepsClient: d.usesTProxy(),
		})...)
	}
	return samples
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
	foundConflict, reported := false, map[string]bool{}
	dependsOnTranslation := slices.ContainsFunc(together.Tables, matchesTranslation)
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
		if s.isTranslated && dependsOnTranslation {
			continue
		}
		if s.meets != nil {
			foundConflict = d.checkLater(s, alone, trace, reported) || foundConflict
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
		if trace.Outcome.Dropped {
			reported[cause(trace)] = true
		}
		severity, next := Warning,
			"remove that rule if only the mesh must handle these connections"
		switch {
		case trace.Outcome.Undecided != "":
			next = "check that rule; run rules validate to test it with connections"
		case trace.DroppedWithoutRule() != nil:
			next = "accept these connections in that chain, or change its policy"
			if alone.Captured() {
				severity = Problem
			}
		case isIstio(lastForeign(trace, anyStep)):
			severity, next = d.istioSeverity(), removeIstio
			if alone.Captured() {
				severity = Problem
			}
		case alone.Captured():
			severity, next = Problem, "remove that rule, or move its chain after Sluice's"
		}
		d.add("rules", severity,
			fmt.Sprintf("%s (%s): with these parameters alone the packet %s; with foreign rules it %s",
				s.description, s.packet, d.predicate(alone), d.actualText(trace)), next)
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
		change = "untracked%s: conntrack does not know its connection, on whose state the rules depend"
		isCause = hasType[rules.Notrack]
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
	return d.predicate(t.Outcome) + cause(t)
}

// cause names the chain whose policy dropped the packet or the last matching rule of a foreign
// table.
func cause(t rules.Trace) string {
	if note := t.DroppedWithoutRule(); note != nil {
		return fmt.Sprintf(": %s", note)
	}
	return by(lastForeign(t, anyStep))
}

// lastForeign returns the last matching rule of a foreign table for which isWanted returns true, or
// nil.
func lastForeign(t rules.Trace, isWanted func(*rules.Step) bool) *rules.Step {
	return lastStep(t, func(s *rules.Step) bool {
		return !compat.IsSluiceTable(s.Table) && isWanted(s)
	})
}

// isIstio reports whether the rule of the step is in a table with rules of Istio.
func isIstio(step *rules.Step) bool {
	return step != nil && istioProgram(step.Table) != ""
}
