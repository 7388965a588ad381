package rules_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// randomSample is the number of packets of each family and direction for each random set of
// parameters. The flag -rapid.checks sets the number of parameter sets.
func randomSample() int {
	if long() {
		return 3000
	}
	return 12
}

// anyRedirect generates valid parameters from few values, so that they often interact: an excluded
// tunnel port, an interface that is rerouted and excluded, or a duplicate user.
func anyRedirect() *rapid.Generator[rules.Redirect] {
	portRange := rapid.SampledFrom(ports("0,1,53,80,443,15001,15006,15008,15053,80-8080,65535"))
	idRange := rapid.SampledFrom(ids("0,1,1337,1338,202,1337-1339,0-5000"))
	prefix := rapid.SampledFrom(must(rules.ParsePrefixes(
		"10.0.0.0/8,10.1.2.3/16,10.96.0.10/32,127.0.0.1/32,127.0.0.2/8,0.0.0.0/0,fd00::/8,fd00:10:96::a/128,::1/128,::/0")))
	name := rapid.SampledFrom(interfaceNames("eth0,eth1,eth+,lo,net1"))
	server := rapid.SampledFrom([]netip.Addr{
		must(rules.ParseServer("10.96.0.10")), must(rules.ParseServer("127.0.0.53")),
		must(rules.ParseServer("fd00:10:96::a")),
	})
	yes := rapid.Bool()
	return rapid.Custom(func(t *rapid.T) rules.Redirect {
		r := rules.DefaultRedirect()
		r.Mode = rapid.SampledFrom([]rules.Mode{
			rules.ModeRedirect, rules.ModeTProxy,
		}).Draw(t, "mode")
		r.TunnelPort = rapid.SampledFrom([]uint16{15008, 53, 80, 443}).Draw(t, "tunnel port")
		r.ProxyUIDs = rapid.SliceOfN(idRange, 1, 3).Draw(t, "uids")
		r.ProxyGIDs = rapid.SliceOfN(idRange, 1, 3).Draw(t, "gids")
		r.TProxyMark = rapid.SampledFrom([]uint32{1337, 1, 1339}).Draw(t, "mark")
		if r.InboundPorts.All = yes.Draw(t, "inbound all"); !r.InboundPorts.All {
			r.InboundPorts.Ports = rapid.SliceOfN(portRange, 0, 3).Draw(t, "inbound")
		}
		r.InboundExcludePorts = rapid.SliceOfN(portRange, 0, 2).Draw(t, "inbound exclude")
		if r.OutboundCIDRs.All = yes.Draw(t, "outbound all"); !r.OutboundCIDRs.All {
			r.OutboundCIDRs.Prefixes = rapid.SliceOfN(prefix, 0, 3).Draw(t, "outbound")
		}
		r.OutboundExcludeCIDRs = rapid.SliceOfN(prefix, 0, 2).Draw(t, "outbound exclude")
		r.OutboundPorts = rapid.SliceOfN(portRange, 0, 2).Draw(t, "outbound ports")
		r.OutboundExcludePorts = rapid.SliceOfN(portRange, 0, 2).Draw(t, "outbound exclude ports")
		if r.OwnerGroups.All = yes.Draw(t, "groups all"); !r.OwnerGroups.All {
			r.OwnerGroups.IDs = rapid.SliceOfN(idRange, 0, 2).Draw(t, "groups")
		}
		r.OwnerGroupsExclude = rapid.SliceOfN(idRange, 0, 2).Draw(t, "groups exclude")
		r.ExcludeInterfaces = rapid.SliceOfN(name, 0, 2).Draw(t, "interfaces exclude")
		r.RerouteInterfaces = rapid.SliceOfN(name, 0, 2).Draw(t, "interfaces reroute")
		if yes.Draw(t, "wide loopback") {
			r.LoopbackCIDR = netip.MustParsePrefix("127.0.0.1/8")
		}
		r.DNS.Capture, r.DNS.All = yes.Draw(t, "DNS"), yes.Draw(t, "all DNS")
		r.DNS.Servers = rapid.SliceOfN(server, 0, 3).Draw(t, "servers")
		r.DropInvalid, r.IPv6 = yes.Draw(t, "drop invalid"), yes.Draw(t, "IPv6")
		if err := r.Validate(); err != nil {
			t.Fatalf("the generated parameters are invalid: %v", err)
		}
		return r
	})
}

// TestStrictRulesTreatEveryPacketAsTheReferenceDoes compares combinations of parameters that the
// recorded runs do not have.
func TestStrictRulesTreatEveryPacketAsTheReferenceDoes(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		r.StrictIstio()
		sluice, istio := rules.MustCompile(r), istioReference(r)
		for _, p := range populations(sluice, istio) {
			p.each(randomSample(), func(packet rules.Packet) bool {
				if !sameOutcome(packet, &sluice, &istio) {
					reportDifference(t, packet, &sluice, &istio)
				}
				return true
			})
		}
	})
}

func TestDeviationsChangeOnlyTheirPackets(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		sluice, istio := rules.MustCompile(r), istioReference(r)
		for _, p := range populations(sluice, istio) {
			p.each(randomSample(), func(packet rules.Packet) bool {
				if !sameOutcome(packet, &sluice, &istio) && deviation(r, packet, &sluice, &istio) == "" {
					reportDifference(t, packet, &sluice, &istio)
				}
				return true
			})
		}
	})
}

// TestKeepEstablishedAffectsOnlyExistingConnections verifies that a new connection has the same
// outcome with and without KeepEstablished, and that TCP packets of other connections are neither
// redirected nor assigned to a listener.
func TestKeepEstablishedAffectsOnlyExistingConnections(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		without := rules.MustCompile(r)
		r.KeepEstablished = true
		with := rules.MustCompile(r)
		for _, p := range populations(with, without) {
			p.each(randomSample(), func(packet rules.Packet) bool {
				existing := packet.Protocol == rules.TCP &&
					packet.Flags&(rules.SYN|rules.ACK) != rules.SYN
				if !existing && !sameOutcome(packet, &with, &without) {
					reportDifference(t, packet, &with, &without)
				}
				if trace := diff.Explain(&with, packet); existing && trace.Outcome.Captured() {
					t.Fatalf("a packet of an existing connection is captured\n%s",
						mismatch(packet.String(), uncaptured, trace))
				}
				return true
			})
		}
	})
}

func TestCompileIsDeterministicAndDoesNotChangeItsInput(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		r.KeepEstablished = rapid.Bool().Draw(t, "keep")
		before := fmt.Sprintf("%+v", r)
		first, second := rules.MustCompile(r), rules.MustCompile(r)
		if after := fmt.Sprintf("%+v", r); after != before {
			t.Fatalf("Compile changes its argument:\nbefore %s\nafter  %s", before, after)
		}
		if !reflect.DeepEqual(first, second) || first.String() != second.String() {
			t.Fatalf("two compilations differ:\n%s\n%s", first, second)
		}
	})
}

// TestOrderAndDuplicatesOfListsHaveNoEffect omits the proxy's users, because the first one differs
// from the others.
func TestOrderAndDuplicatesOfListsHaveNoEffect(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		shuffled := r
		shuffled.ProxyGIDs = shuffle(t, r.ProxyGIDs)
		shuffled.InboundPorts.Ports = shuffle(t, r.InboundPorts.Ports)
		shuffled.InboundExcludePorts = shuffle(t, r.InboundExcludePorts)
		shuffled.OutboundCIDRs.Prefixes = shuffle(t, r.OutboundCIDRs.Prefixes)
		shuffled.OutboundExcludeCIDRs = shuffle(t, r.OutboundExcludeCIDRs)
		shuffled.OutboundPorts = shuffle(t, r.OutboundPorts)
		shuffled.OutboundExcludePorts = shuffle(t, r.OutboundExcludePorts)
		shuffled.OwnerGroups.IDs = shuffle(t, r.OwnerGroups.IDs)
		shuffled.OwnerGroupsExclude = shuffle(t, r.OwnerGroupsExclude)
		shuffled.ExcludeInterfaces = shuffle(t, r.ExcludeInterfaces)
		shuffled.RerouteInterfaces = shuffle(t, r.RerouteInterfaces)
		shuffled.DNS.Servers = shuffle(t, r.DNS.Servers)
		if diffs := rules.Compare(rules.MustCompile(r),
			rules.MustCompile(shuffled)); len(diffs) > 0 {
			t.Fatalf("the same parameters in another order compile to other rules:\n%v", diffs)
		}
	})
}

// shuffle returns the values in random order, with the first one duplicated.
func shuffle[T any](t *rapid.T, values []T) []T {
	if len(values) == 0 {
		return nil
	}
	return rapid.Permutation(append(values[:len(values):len(values)], values[0])).Draw(t, "order")
}
