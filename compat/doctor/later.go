package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A listener describes the sockets of the proxy or of ztunnel.
type listener struct {
	owner rules.Owner
	mark  uint32 // of outgoing packets
	// outbound and inbound are the ports that captured connections are redirected to.
	outbound, inbound uint16
	// isTransparent is set if inbound connections keep their destination (TPROXY), and keepsClient
	// if connections to the application have the client's address.
	isTransparent, keepsClient bool
}

// translationPriority is the priority at which the kernel translates packets of a connection that
// began earlier: their destination at prerouting and output (NF_IP_PRI_NAT_DST), and their source
// at postrouting (NF_IP_PRI_NAT_SRC).
func translationPriority(h rules.Hook) int {
	if h == rules.Postrouting {
		return -rules.IstioNATPriority
	}
	return rules.IstioNATPriority
}

func isBeforeTranslation(b *rules.Base) bool { return b.Priority < translationPriority(b.Hook) }

func isAfterTranslation(b *rules.Base) bool { return b.Priority > translationPriority(b.Hook) }

// laterSamples returns packets that follow the first packet of a TCP connection: of a captured
// connection in each direction, of a connection that the proxy opens to another host, and of its
// connection to the application. A packet that the kernel translates has a sample before and one
// after the translation, because rules do not translate it.
func (d *diagnosis) laterSamples(
	pod, remote netip.Addr, application rules.Owner, proxy listener,
) []sample {
	client, server := netip.AddrPortFrom(pod, ephemeralPort), netip.AddrPortFrom(remote, 80)
	peer, service := netip.AddrPortFrom(remote, ephemeralPort), netip.AddrPortFrom(pod, servicePort)
	loopback := netip.MustParseAddr(rules.ByFamily(rules.FamilyOf(pod), "127.0.0.1", "::1"))
	outbound, inbound := netip.AddrPortFrom(loopback, proxy.outbound), netip.AddrPortFrom(pod, proxy.inbound)
	passthrough := netip.AddrPortFrom(
		rules.ByFamily(rules.FamilyOf(pod), rules.PassthroughIPv4(), rules.PassthroughIPv6()), ephemeralPort)
	always := func(*rules.Base) bool { return true }
	isBeforeOutput := func(b *rules.Base) bool { return b.Hook != rules.Postrouting && isBeforeTranslation(b) }
	isAfterOutput := func(b *rules.Base) bool { return b.Hook != rules.Postrouting && isAfterTranslation(b) }
	isPostrouting := func(b *rules.Base) bool { return b.Hook == rules.Postrouting }
	isBeforeSource := func(b *rules.Base) bool { return b.Hook != rules.Postrouting || isBeforeTranslation(b) }

	const translated, untranslated = true, false
	later := func(
		description string, hook rules.Hook, device string, from, to netip.AddrPort, isTranslated bool,
		meets func(*rules.Base) bool,
	) sample {
		return sample{description, rules.Packet{
			Hook: hook, InInterface: device, Protocol: rules.TCP, Flags: rules.PSH | rules.ACK,
			Source: from, Destination: to, State: rules.Established,
			Status: rules.StatusSeenReply | rules.StatusConfirmed | rules.StatusAssured,
		}, meets, isTranslated}
	}
	received := func(
		description, device string, from, to netip.AddrPort, isTranslated bool, meets func(*rules.Base) bool,
	) sample {
		return later(description, rules.Prerouting, device, from, to, isTranslated, meets)
	}
	sent := func(
		description, device string, owner rules.Owner, from, to netip.AddrPort, isTranslated bool,
		meets func(*rules.Base) bool,
	) sample {
		s := later(description, rules.Output, "", from, to, isTranslated, meets)
		s.packet.OutInterface, s.packet.Owner = device, &owner
		if owner == proxy.owner {
			s.packet.Mark = proxy.mark
		}
		return s
	}
	// answer changes a sample to the first answer, with SYN and ACK.
	answer := func(s sample) sample {
		s.packet.Reply, s.packet.Flags = true, rules.SYN|rules.ACK
		s.packet.Status &^= rules.StatusAssured
		return s
	}

	const ofOutbound, ofInbound = "data of captured outbound connections", "data of captured inbound connections"
	const toApplication = "the proxy's answers to captured outbound connections"
	const toPeer = "the proxy's answers to captured inbound connections"
	const toProxy = "the application's answers to the proxy"
	samples := []sample{
		sent(ofOutbound, "eth0", application, client, server, translated, isBeforeOutput),
		sent(ofOutbound, "eth0", application, client, outbound, translated, isAfterOutput),
		sent(ofOutbound, lo, application, client, outbound, translated, isPostrouting),
		received(ofOutbound, lo, client, outbound, translated, always),
		answer(sent(toApplication, lo, proxy.owner, outbound, client, translated, isBeforeSource)),
		answer(received(toApplication, lo, server, client, translated, always)),
		sent("data of the proxy's outbound connections", "eth0", proxy.owner, client, server, untranslated, always),
		answer(received("answers to the proxy's outbound connections", "eth0", server, client, untranslated, always)),
	}
	if proxy.isTransparent {
		samples = append(samples,
			received(ofInbound, "eth0", peer, service, untranslated, always),
			answer(sent(toPeer, "eth0", proxy.owner, service, peer, untranslated, always)))
	} else {
		samples = append(samples,
			received(ofInbound, "eth0", peer, service, translated, isBeforeTranslation),
			received(ofInbound, "eth0", peer, inbound, translated, isAfterTranslation),
			answer(sent(toPeer, "eth0", proxy.owner, inbound, peer, translated, isBeforeSource)))
	}
	if proxy.keepsClient {
		s := answer(sent(toProxy, "eth0", application, service, peer, untranslated, always))
		s.packet.ConntrackMark = d.replyMark() // routes the answer to lo
		return append(samples, s)
	}
	return append(samples,
		sent("the proxy's data to the application", lo, proxy.owner, passthrough, service, untranslated, always),
		received("the proxy's data to the application", lo, passthrough, service, untranslated, always),
		answer(sent(toProxy, lo, application, service, passthrough, untranslated, always)))
}

// matchesTranslation reports whether a rule of the table matches connections that are translated.
func matchesTranslation(t rules.Table) bool {
	return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.ContainsFunc(r.Matches, func(m rules.Match) bool {
				s, isState := m.(rules.MatchState)
				_, isStatus := m.(rules.MatchStatus)
				return isStatus || isState && (s.States.Has(rules.DNAT) || s.States.Has(rules.SNAT))
			})
		})
	})
}

// checkLater reports that foreign rules drop, or may drop, a later packet of a connection. alone is
// the outcome with Sluice's rules alone. reported contains the causes that were reported, to which
// checkLater adds its own. It reports whether the packet is or may be dropped.
func (d *diagnosis) checkLater(
	s sample, alone rules.Outcome, trace rules.Trace, reported map[string]bool,
) bool {
	if alone.Dropped || alone.Undecided != "" {
		return false
	}
	severity, next := Warning, "check that rule; run rules validate to test it with connections"
	text := "the packet may be dropped"
	switch {
	case trace.Outcome.Dropped:
		if b := droppingBase(trace); b != nil && !s.meets(b) {
			return false
		}
		severity, next = Problem, "remove that rule, or accept these connections before it"
		text = "the packet is dropped" + cause(trace)
	case trace.Outcome.Undecided != "" && len(trace.UnknownAt) > 0:
		text += ": " + trace.Outcome.Undecided
	case slices.ContainsFunc(trace.Alternatives, func(o rules.Outcome) bool { return o.Dropped }):
		text += ", depending on a limit, a random number or a list of unknown contents"
	default:
		return false
	}
	if !reported[cause(trace)] {
		reported[cause(trace)] = true
		d.add("rules", severity,
			fmt.Sprintf("%s (%s): with foreign rules %s", s.description, s.packet, text), next)
	}
	return true
}

// droppingBase returns the base chain in which the packet was dropped, or nil if it is unknown.
func droppingBase(t rules.Trace) *rules.Base {
	if note := t.DroppedWithoutRule(); note != nil {
		if note.Chain.Chain == nil {
			return nil
		}
		return note.Chain.Chain.Base
	}
	if step := lastStep(t, anyStep); step != nil {
		return step.Base
	}
	return nil
}
