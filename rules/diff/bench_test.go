package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// BenchmarkExplain measures Explain for one packet and a pod's rules.
func BenchmarkExplain(b *testing.B) {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6, r.DNS.Capture = true, true, true, true
	rs := rules.MustCompile(r)
	p := must(rules.ParsePacket("out tcp 10.244.1.5:40000 > 10.96.0.1:443 uid 1000"))
	b.ReportAllocs()
	for b.Loop() {
		diff.Explain(&rs, p)
	}
}

// BenchmarkDecide compares a pod's rules with themselves, and with the rules of a pod that also
// excludes an outbound port.
func BenchmarkDecide(b *testing.B) {
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6, r.DNS.Capture = true, true, true, true
	left := rules.MustCompile(r)
	r.OutboundExcludePorts = []rules.PortRange{rules.Single[uint16](5432)}
	right := rules.MustCompile(r)
	for name, rs := range map[string]rules.Ruleset{"equivalent": left, "different": right} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				diff.Decide(diff.Side{Ruleset: left, RoutingKnown: true},
					diff.Side{Ruleset: rs, RoutingKnown: true}, diff.Options{})
			}
		})
	}
}
