package rules_test

import (
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// leftovers lists runs that leave rules of an earlier run in place. Their rules do not match their
// parameters.
var leftovers = map[string]string{
	"126-reconcile-from-tproxy":        "the rules of TPROXY and DNS remain although the new run has none",
	"12a-rerun-dns-to-nodns-reconcile": "the conntrack zones of DNS remain although the new run captures no DNS",
}

// TestStrictRulesTreatEveryPacketAsIstiosDo verifies that, without deviations, Compile's rules are
// equivalent to the rules of every recorded run of istio-iptables. In the long form it compares one
// packet of each class, otherwise a sample of these packets.
func TestStrictRulesTreatEveryPacketAsIstiosDo(t *testing.T) {
	for _, c := range rulestest.Sample(istioCases(t), os.Getenv) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sluice := c.strict(t)
			_, isLeftover := leftovers[c.name]
			different := false
			for _, p := range populations(sluice, c.ruleset) {
				p.each(sampleLimit(), func(packet rules.Packet) bool {
					different = !sameOutcome(packet, &sluice, &c.ruleset)
					if different && !isLeftover {
						reportDifference(t, packet, &sluice, &c.ruleset)
					}
					return !different
				})
				if different {
					break
				}
			}
			if isLeftover && !different {
				t.Errorf("no packet shows the known difference of this run: %s", leftovers[c.name])
			}
		})
	}
}

// TestStrictRulesTreatRandomPacketsAsIstiosDo compares packets with random values, which
// TestStrictRulesTreatEveryPacketAsIstiosDo does not, and packets with values of the rules.
func TestStrictRulesTreatRandomPacketsAsIstiosDo(t *testing.T) {
	for _, c := range istioCases(t) {
		if leftovers[c.name] != "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sluice := c.strict(t)
			packets := rapid.SliceOfN(anyPacket(collectParts([]rules.Ruleset{sluice, c.ruleset})),
				10, 10)
			rapid.Check(t, func(rt *rapid.T) {
				for _, p := range packets.Draw(rt, "packets") {
					if !sameOutcome(p, &sluice, &c.ruleset) {
						reportDifference(rt, p, &sluice, &c.ruleset)
					}
				}
			})
		})
	}
}

// TestPacketsDifferFromIstioOnlyByDeviations compares compiled rules with all deviations enabled.
func TestPacketsDifferFromIstioOnlyByDeviations(t *testing.T) {
	for _, c := range rulestest.Sample(istioCases(t), os.Getenv) {
		if leftovers[c.name] != "" || c.onlyCleansUp() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sluice := compile(t, c.redirect)
			seen := map[rules.DeviationID]bool{}
			for _, p := range populations(sluice, c.ruleset) {
				p.each(sampleLimit(), func(packet rules.Packet) bool {
					if sameOutcome(packet, &sluice, &c.ruleset) {
						return true
					}
					id := deviation(c.redirect, packet, &sluice, &c.ruleset)
					if id == "" {
						reportDifference(t, packet, &sluice, &c.ruleset)
						return false
					}
					seen[id] = true
					return true
				})
			}
			r := c.redirect
			tproxied := r.Mode == rules.ModeTProxy && (r.InboundPorts.All ||
				slices.ContainsFunc(r.InboundPorts.Ports,
					func(p rules.PortRange) bool { return p.Contains(r.TunnelPort) }))
			if seen[rules.TunnelPortTProxy] != tproxied {
				t.Errorf("a packet differs by deviation %s: %t, want %t", rules.TunnelPortTProxy,
					!tproxied, tproxied)
			}
			if rerouted := tproxied &&
				len(r.RerouteInterfaces) > 0; seen[rules.RerouteTProxy] != rerouted {
				t.Errorf("a packet differs by deviation %s: %t, want %t", rules.RerouteTProxy,
					!rerouted, rerouted)
			}
		})
	}
}

// strict compiles the parameters of the run without deviations. A run that only cleans up has no
// rules.
func (c istioCase) strict(t testing.TB) rules.Ruleset {
	if c.onlyCleansUp() {
		return rules.Ruleset{}
	}
	r := c.redirect
	r.StrictIstio()
	return compile(t, r)
}

func (c istioCase) onlyCleansUp() bool { return c.enabled("cleanup-only") }

// deviation returns the deviation that explains a packet's different outcome, or an empty string.
func deviation(r rules.Redirect, p rules.Packet, sluice, istio *rules.Ruleset) rules.DeviationID {
	got, want := diff.Explain(sluice, p), diff.Explain(istio, p)
	last := got.Passes[len(got.Passes)-1].Packet
	if r.Mode != rules.ModeTProxy || last.Hook != rules.Prerouting || last.Protocol != rules.TCP {
		return ""
	}
	// With either deviation a packet is treated as in REDIRECT mode: its mark is unchanged, and it
	// goes to no listener.
	expected := want.Outcome
	expected.Dropped, expected.TProxy, expected.Mark = false, 0, last.Mark
	if len(want.Passes) == 1 && want.Outcome.Dropped {
		expected.Redirect = got.Outcome.Redirect // the drop hides the effect of the nat table
	}
	if got.Outcome != expected {
		return ""
	}
	rerouted := func(n rules.InterfaceName) bool { return n.Contains(last.InInterface) }
	switch {
	case slices.ContainsFunc(r.RerouteInterfaces, rerouted):
		return rules.RerouteTProxy
	case last.Destination.Port() == r.TunnelPort:
		return rules.TunnelPortTProxy
	}
	return ""
}

// populations returns the packets of both families and directions.
func populations(rulesets ...rules.Ruleset) []*population {
	var all []*population
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		for _, h := range []rules.Hook{rules.Prerouting, rules.Output} {
			all = append(all, newPopulation(f, h, rulesets...))
		}
	}
	return all
}

// sameOutcome reports whether a packet has the same outcome with both rulesets, or is impossible.
func sameOutcome(p rules.Packet, sluice, reference *rules.Ruleset) bool {
	if p.State == rules.Untracked && p.Protocol != rules.ICMPv6 {
		return true // impossible, see diff.Possible
	}
	return diff.Explain(sluice, p).Outcome.Same(diff.Explain(reference, p).Outcome)
}

// reportDifference fails with the outcomes of the packet, and its path through both rulesets. The
// outcome with reference is the expected one.
func reportDifference(t rapid.TB, p rules.Packet, sluice, reference *rules.Ruleset) {
	t.Helper()
	got, want := diff.Explain(sluice, p), diff.Explain(reference, p)
	t.Fatalf("%s\n\tthe path with the expected outcome:\n%s",
		mismatch(p.String(), want.Outcome, got), decisions(want))
}

// anyPacket generates packets with typical and unusual values, and with values of the rules.
func anyPacket(parts ruleParts) *rapid.Generator[rules.Packet] {
	addrs := map[rules.Family]*rapid.Generator[rules.Packet]{}
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		sources, destinations := rapid.SampledFrom(parts.addressValues(f, rules.Source)),
			rapid.SampledFrom(parts.addressValues(f, rules.Destination))
		addrs[f] = rapid.Custom(func(t *rapid.T) rules.Packet {
			var p rules.Packet
			setAddr(&p, rules.Source, sources.Draw(t, "source"))
			setAddr(&p, rules.Destination, destinations.Draw(t, "destination"))
			return p
		})
	}
	port := func(side rules.Side) *rapid.Generator[uint16] {
		return rapid.OneOf(rapid.SampledFrom(parts.portValues(side)), rapid.Uint16())
	}
	id := func(group bool) *rapid.Generator[uint32] {
		return rapid.OneOf(rapid.SampledFrom(parts.idValues(group)), rapid.Uint32())
	}
	sourcePort, destinationPort, uid, gid := port(rules.Source), port(rules.Destination), id(false),
		id(true)
	mark := rapid.OneOf(rapid.SampledFrom(parts.markValues()), rapid.Uint32())
	interfaces := rapid.SampledFrom(parts.interfaceValues())
	protocols := rapid.SampledFrom([]rules.Protocol{
		rules.TCP, rules.TCP, rules.TCP, rules.UDP, rules.UDP, rules.ICMP, rules.SCTP,
	})
	return rapid.Custom(func(t *rapid.T) rules.Packet {
		p := addrs[rapid.SampledFrom([]rules.Family{
			rules.IPv4, rules.IPv6,
		}).Draw(t, "family")].Draw(t, "addresses")
		p.Hook = rapid.SampledFrom([]rules.Hook{rules.Prerouting, rules.Output}).Draw(t, "hook")
		p.Protocol = protocols.Draw(t, "protocol")
		setPort(&p, rules.Source, sourcePort.Draw(t, "source port"))
		setPort(&p, rules.Destination, destinationPort.Draw(t, "destination port"))
		setInterface(&p, p.Hook, interfaces.Draw(t, "interface"))
		p.State = rules.State(rapid.IntRange(int(rules.New), int(rules.Untracked)).Draw(t, "state"))
		p.Mark, p.ConntrackMark = mark.Draw(t, "mark"), mark.Draw(t, "connection mark")
		p.Flags = rules.TCPFlags(rapid.IntRange(0, 63).Draw(t, "flags"))
		p.NoListener = rapid.Bool().Draw(t, "no listener")
		if p.Hook == rules.Output && rapid.IntRange(0, 5).Draw(t, "socket") > 0 {
			p.Owner = &rules.Owner{UID: uid.Draw(t, "uid"), GID: gid.Draw(t, "gid")}
		}
		p, exists := normalize(p)
		if !exists {
			p.ConntrackMark = 0
		}
		return p
	})
}
