package diff_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

func TestPossible(t *testing.T) {
	for _, tc := range []struct {
		name, packet string
		possible     bool
	}{
		{"a typical arriving packet", "in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0", true},
		{
			"a packet that arrives on lo, which is an output packet first",
			"in tcp 10.244.1.5:40000 > 10.244.1.5:80 dev lo",
			false,
		},
		{
			"a packet to its source address that leaves through lo",
			"out tcp 10.244.1.5:40000 > 10.244.1.5:80 dev lo uid 1000 gid 1000", true,
		},
		{
			"a packet from 127.0.0.0/8 that arrives on eth0",
			"in tcp 127.1.2.3:40000 > 10.244.1.5:80 dev eth0",
			false,
		},
		{
			"a packet to 127.0.0.1 that arrives on eth0, which a redirection may change",
			"in tcp 192.0.2.1:40000 > 127.0.0.1:80 dev eth0", true,
		},
		{
			"a packet from ::1 that arrives on eth0", "in tcp [::1]:40000 > [fd00::5]:80 dev eth0",
			false,
		},
		{
			"a packet to ::1 that arrives on eth0",
			"in tcp [2001:db8::1]:40000 > [::1]:80 dev eth0", false,
		},
		{
			"a packet to ::6 that arrives on eth0",
			"in tcp [2001:db8::1]:40000 > [::6]:80 dev eth0", true,
		},
		{
			"a packet from an IPv4 multicast address",
			"in udp 224.0.0.1:40000 > 10.244.1.5:80 dev eth0", false,
		},
		{
			"a packet from an IPv6 multicast address",
			"in udp [ff02::1]:40000 > [fd00::5]:80 dev eth0", false,
		},
		{
			"a packet to an IPv6 multicast address",
			"in udp [fe80::1]:5353 > [ff02::fb]:5353 dev eth0", true,
		},
		{
			"a socket sends from a foreign address",
			"out tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 uid 0 gid 0", true,
		},
		{
			"a socket sends to 127.0.0.1 through eth0",
			"out tcp 10.244.1.5:40000 > 127.0.0.1:80 dev eth0 uid 0 gid 0", true,
		},
		{
			"a socket sends to a remote address through lo",
			"out tcp 10.244.1.5:40000 > 192.0.2.1:80 dev lo uid 0 gid 0",
			true,
		},
		{
			"the kernel sends without a socket",
			"out tcp 10.244.1.5:40000 > 192.0.2.1:80 dev eth0 no-socket", true,
		},
		{
			"a packet arrives with a mark",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 mark 0x1", true,
		},
		{
			"a new TCP connection without SYN",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 flags ack", true,
		},
		{
			"a new connection has a mark from an earlier packet",
			"in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0 ctmark 0x1", true,
		},
		{"a new ping", "in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 8", true},
		{"a new ping of IPv6", "in ipv6-icmp fd00::1 > fd00::5 dev eth0 icmp 128", true},
		{
			"an answer to a ping",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 0 state established reply", true,
		},
		{
			"a ping in reply direction",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 8 state established reply", false,
		},
		{
			"an answer that begins a connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 0 state new", false,
		},
		{
			"an error that begins a connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 3/1 state new", false,
		},
		{
			"an error of IPv6 that begins a connection",
			"in ipv6-icmp fd00::1 > fd00::5 dev eth0 icmp 1/3 state new", false,
		},
		{
			"an error about a connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 3/1 state related", true,
		},
		{
			"an error about no connection",
			"in icmp 192.0.2.1 > 10.244.1.5 dev eth0 icmp 3/1 state invalid", true,
		},
	} {
		p := must(rules.ParsePacket(tc.packet))
		if diff.Possible(p) != tc.possible {
			t.Errorf("%s: %s: possible is %t, want %t", tc.name, p, !tc.possible, tc.possible)
		}
	}
}

func TestFieldsThatDoNotApplyMakeAPacketImpossible(t *testing.T) {
	ordinary := must(rules.ParsePacket("in tcp 192.0.2.1:40000 > 10.244.1.5:80 dev eth0"))
	for name, change := range map[string]func(*rules.Packet){
		"ports of a protocol without ports": func(p *rules.Packet) {
			p.Protocol, p.Flags = rules.ICMP, 0
		},
		"flags of UDP": func(p *rules.Packet) { p.Protocol = rules.UDP },
		"a conntrack mark without a connection": func(p *rules.Packet) {
			p.State, p.ConntrackMark = rules.Invalid, 1
		},
		"a conntrack mark of an untracked packet": func(p *rules.Packet) {
			p.State, p.ConntrackMark = rules.Untracked, 1
		},
		"a socket owner of an arriving packet": func(p *rules.Packet) { p.Owner = &rules.Owner{} },
		"addresses of two families": func(p *rules.Packet) {
			p.Source = must(rules.ParsePacket("in tcp [::2]:1 > [::3]:1")).Source
		},
		"a hook other than prerouting and output": func(p *rules.Packet) { p.Hook = rules.Input },
	} {
		p := ordinary
		if change(&p); diff.Possible(p) {
			t.Errorf("%s is possible: %s, want impossible", name, p)
		}
	}
}

// must returns the value. It panics if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestDomainIsThePossiblePackets compares an empty ruleset with one that drops everything. The
// packets that differ are the whole domain.
func TestDomainIsThePossiblePackets(t *testing.T) {
	drops := func(h rules.Hook) rules.Chain { return base(rules.Filter, h, -150, when(rules.Drop)) }
	everything := rules.Ruleset{Tables: []rules.Table{{
		Name: "t", Chains: []rules.Chain{drops(rules.Prerouting), drops(rules.Output)},
	}}}
	result := decide(everything, rules.Ruleset{})
	rapid.Check(t, func(t *rapid.T) {
		d := fair(t)
		for range 50 {
			checkPacket(t, d.packet(), result, &everything, &rules.Ruleset{})
		}
	})
	if len(result.Classes) != 4 {
		t.Errorf("got the classes %v, want one for each family and hook", classes(result))
	}
}
