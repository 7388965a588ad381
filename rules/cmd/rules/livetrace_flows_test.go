package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// Kernels before 6.16 do not report the conntrack state of traced packets.
func TestFirstPacketsWithoutConntrackState(t *testing.T) {
	client, server := netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:53")
	begin := time.Now()
	packet := func(protocol rules.Protocol, from, to netip.AddrPort, sequence uint32,
		after time.Duration,
	) trace.Packet {
		return trace.Packet{Time: begin.Add(after), Events: []trace.Event{{Header: &trace.Header{
			Protocol: protocol, Source: from, Destination: to, Sequence: sequence,
		}}}}
	}
	for _, row := range []struct {
		name     string
		second   trace.Packet
		repeated bool
	}{
		{"UDP, same direction", packet(rules.UDP, client, server, 0, time.Second), true},
		{"UDP, reply", packet(rules.UDP, server, client, 0, time.Second), true},
		{"UDP, another port", packet(rules.UDP, client, netip.AddrPortFrom(server.Addr(), 54), 0, 0), false},
		{"UDP, after the timeout", packet(rules.UDP, client, server, 0, flowTimeout+time.Second), false},
		{"TCP, retransmission", packet(rules.TCP, client, server, 7, flowTimeout+time.Second), true},
		{"TCP, another sequence number", packet(rules.TCP, client, server, 8, time.Second), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var seen flows
			first := packet(rules.UDP, client, server, 0, 0)
			if row.second.Header().Protocol == rules.TCP {
				first = packet(rules.TCP, client, server, 7, 0)
			}
			if seen.record(first) {
				t.Fatal("the first packet counts as repeated")
			}
			if got := seen.record(row.second); got != row.repeated {
				t.Errorf("repeated: %t, want %t", got, row.repeated)
			}
		})
	}
}
