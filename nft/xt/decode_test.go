package xt_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// pack encodes a structure from numbers in host byte order and bytes.
func pack(fields ...any) []byte {
	var b []byte
	for _, f := range fields {
		switch f := f.(type) {
		case []byte:
			b = append(b, f...)
		default:
			b = must(binary.Append(b, binary.NativeEndian, f))
		}
	}
	return b
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// numbers encodes 32-bit numbers.
func numbers(list ...uint32) []byte { return pack(list) }

// zeros returns n zero bytes.
func zeros(n int) []byte { return make([]byte, n) }

const allBits = ^uint32(0)

var (
	tcp = rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
	udp = rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}

	icmp  = rules.MatchProtocol{Protocols: []rules.Protocol{rules.ICMP}}
	icmp6 = rules.MatchProtocol{Protocols: []rules.Protocol{rules.ICMPv6}}
)

// compareOptions returns options for comparing matches.
func compareOptions() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmpopts.IgnoreFields(rules.Unknown{}, "Ignores"), // see TestEveryMatchIsClassified
	}
}

// decodeMatch adds the matches of an extension to the rule.
func decodeMatch(r *rules.Rule, family rules.Family, x xt.Extension) {
	r.Matches = append(r.Matches, xt.DecodeMatch(r, family, x)...)
}

// reads returns a match that the model does not represent and that has no side effect.
func reads(text string) []rules.Match {
	return []rules.Match{rules.Unknown{Text: text, Effect: rules.Reads}}
}

func TestDecodeMatch(t *testing.T) {
	ids := func(first, last uint32) []rules.IDRange {
		return []rules.IDRange{{First: first, Last: last}}
	}
	port := func(side rules.Side, not bool, ranges ...rules.PortRange) rules.MatchPort {
		return rules.MatchPort{Side: side, Not: not, Ports: ranges}
	}
	// tcpInfo is struct xt_tcp with ports of both sides.
	tcpInfo := func(source, destination [2]uint16, rest ...byte) []byte {
		return pack(source[:], destination[:], rest)
	}
	whole, web := [2]uint16{0, 65535}, [2]uint16{80, 80}
	owner := func(uid, gid [2]uint32, bits ...byte) []byte {
		return pack(uid[:], gid[:], bits, zeros(2))
	}
	someone, group := [2]uint32{1337, 1337}, [2]uint32{1338, 1339}
	multi := func(direction, count byte, ports []uint16, flags []byte, invert byte) []byte {
		ports, flags = append(ports, make([]uint16, 15-len(ports))...),
			append(flags, zeros(15-len(flags))...)
		return pack([]byte{direction, count}, ports, flags, []byte{invert})
	}
	state := func(revision uint32, requested, negated, mask uint16) []byte {
		b := pack(zeros(146), requested, negated)
		if revision == 1 {
			return pack(b, []byte{byte(mask), 0})
		}
		return pack(b, mask, zeros(map[uint32]int{2: 4, 3: 12}[revision]))
	}
	// status is like state, with the mask of the status after the mask of the state.
	status := func(revision uint32, negated, mask uint16) []byte {
		b := state(revision, 0x40, negated, 0)
		if revision == 1 {
			b[151] = byte(mask)
		} else {
			binary.NativeEndian.PutUint16(b[152:], mask)
		}
		return b
	}
	addr := func(text string) []byte {
		a := netip.MustParseAddr(text)
		return append(a.AsSlice(), zeros(16-len(a.AsSlice()))...)
	}
	between := func(side rules.Side, not bool, text string) rules.MatchAddr {
		return rules.MatchAddr{
			Side: side, Not: not, Ranges: []netipx.IPRange{netipx.MustParseIPRange(text)},
		}
	}
	for _, tc := range []struct {
		name     string
		protocol rules.Match // the rule's protocol match
		match    string
		revision uint32
		info     []byte
		want     []rules.Match // nil means an unknown match with the info as its Data
	}{
		{
			"--mark 0x539", nil, "mark", 1, pack(numbers(0x539, allBits), zeros(4)),
			[]rules.Match{rules.MatchMark{Value: 0x539, Mask: allBits}},
		},
		{
			"! --mark 0x1/0xf", nil, "mark", 1, pack(numbers(1, 15), []byte{1, 0, 0, 0}),
			[]rules.Match{rules.MatchMark{Not: true, Value: 1, Mask: 15}},
		},
		{"an older revision of mark", nil, "mark", 0, pack(numbers(1, 15), zeros(4)), nil},
		{"a truncated mark", nil, "mark", 1, numbers(1, 15), nil},
		{
			"connmark", nil, "connmark", 1, pack(numbers(1, allBits), zeros(4)),
			[]rules.Match{rules.MatchMark{Conntrack: true, Value: 1, Mask: allBits}},
		},

		{
			"--uid-owner 1337", nil, "owner", 1, owner(someone, someone, 1, 0),
			[]rules.Match{rules.MatchOwner{IDs: ids(1337, 1337)}},
		},
		{"! --gid-owner 1338-1339", nil, "owner", 1, owner(someone, group, 2, 2), []rules.Match{
			rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: ids(1338, 1339)},
		}},
		{"a user and a negated group", nil, "owner", 1, owner(someone, group, 3, 2), []rules.Match{
			rules.MatchOwner{IDs: ids(1337, 1337)},
			rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: ids(1338, 1339)},
		}},
		{
			"--socket-exists", nil, "owner", 1, owner(someone, someone, 4, 0),
			[]rules.Match{rules.MatchOwner{IDs: ids(0, allBits)}},
		},
		{"! --socket-exists", nil, "owner", 1, owner(someone, someone, 4, 4), []rules.Match{
			rules.MatchOwner{Not: true, Socketless: true, IDs: ids(0, allBits)},
		}},
		{
			"--socket-exists ! --uid-owner", nil, "owner", 1, owner(someone, someone, 5, 1),
			[]rules.Match{rules.MatchOwner{Not: true, IDs: ids(1337, 1337)}},
		},
		{"no socket and a user", nil, "owner", 1, owner(someone, someone, 5, 4), nil},
		{"--suppl-groups", nil, "owner", 1, owner(someone, someone, 10, 0), nil},
		{"an owner without a condition", nil, "owner", 1, owner(someone, someone, 0, 0), nil},
		{
			"a negation of a field that is not compared", nil, "owner", 1,
			owner(someone, group, 1, 2), nil,
		},
		{
			"an owner with a reversed range", nil, "owner", 1,
			owner([2]uint32{2, 1}, group, 1, 0), nil,
		},
		{"a truncated owner", nil, "owner", 1, owner(someone, group, 1, 0)[:19], nil},

		{
			"--dport 80", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 0),
			[]rules.Match{port(rules.Destination, false, rules.Single[uint16](80))},
		},
		{"! --sport 80:90 --tcp-flags SYN,ACK SYN", tcp, "tcp", 0, tcpInfo([2]uint16{80, 90}, whole,
			0, 0x12, 2, 1), []rules.Match{
			port(rules.Source, true, rules.PortRange{First: 80, Last: 90}),
			rules.MatchTCPFlags{Mask: rules.SYN | rules.ACK, Value: rules.SYN},
		}},
		{"! --syn", tcp, "tcp", 0, tcpInfo(whole, whole, 0, 0x17, 2, 4), []rules.Match{
			rules.MatchTCPFlags{
				Not: true, Mask: rules.FIN | rules.SYN | rules.RST | rules.ACK, Value: rules.SYN,
			},
		}},
		{"-m tcp alone", tcp, "tcp", 0, tcpInfo(whole, whole, 0, 0, 0, 0), []rules.Match{}},
		{
			"a negation of all ports", tcp, "tcp", 0, tcpInfo(whole, whole, 0, 0, 0, 2),
			[]rules.Match{port(rules.Destination, true, rules.PortRange{Last: 65535})},
		},
		{"tcp of a rule for UDP", udp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 0), nil},
		{"tcp of a rule for any protocol", nil, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 0), nil},
		{"--tcp-option", tcp, "tcp", 0, tcpInfo(whole, web, 2, 0, 0, 0), nil},
		{"! --tcp-option", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 8), nil},
		{"TCP flags that the model does not support", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0x40, 0, 0), nil},
		{"reversed ports", tcp, "tcp", 0, tcpInfo([2]uint16{9, 8}, web, 0, 0, 0, 0), nil},
		{"a truncated tcp", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0), nil},
		{
			"-p udp --sport 53", udp, "udp", 0, pack([]uint16{53, 53, 0, 65535}, zeros(2)),
			[]rules.Match{port(rules.Source, false, rules.Single[uint16](53))},
		},
		{
			"-p udp ! --dport 53", udp, "udp", 0, pack([]uint16{0, 65535, 53, 53}, []byte{2, 0}),
			[]rules.Match{port(rules.Destination, true, rules.Single[uint16](53))},
		},
		{
			"udp with an unknown bit", udp, "udp", 0,
			pack([]uint16{0, 65535, 53, 53}, []byte{4, 0}), nil,
		},
		{"udp of a rule for TCP", tcp, "udp", 0, pack([]uint16{53, 53, 0, 65535}, zeros(2)), nil},

		{"--dports 443,80:90", tcp, "multiport", 1, multi(1, 3, []uint16{443, 80, 90},
			[]byte{0, 1, 0}, 0), []rules.Match{
			port(rules.Destination, false, rules.PortRange{First: 80, Last: 90},
				rules.Single[uint16](443)),
		}},
		{
			"! --sports 1,2 of UDP", udp, "multiport", 1, multi(0, 2, []uint16{1, 2}, nil, 1),
			[]rules.Match{port(rules.Source, true, rules.Singles[uint16](1, 2)...)},
		},
		{"--ports 1,3:5", tcp, "multiport", 1, multi(2, 3, []uint16{1, 3, 5}, []byte{0, 1},
			0), []rules.Match{
			rules.MatchTuple{Alternatives: [][]rules.Match{
				{port(rules.Source, false, rules.Single[uint16](1), rules.PortRange{
					First: 3, Last: 5,
				})},
				{port(rules.Destination, false, rules.Single[uint16](1), rules.PortRange{
					First: 3, Last: 5,
				})},
			}},
		}},
		{"! --ports 80 of UDP", udp, "multiport", 1, multi(2, 1, []uint16{80}, nil,
			1), []rules.Match{
			rules.MatchTuple{Not: true, Alternatives: [][]rules.Match{
				{port(rules.Source, false, rules.Single[uint16](80))},
				{port(rules.Destination, false, rules.Single[uint16](80))},
			}},
		}},
		{"--ports of any protocol", nil, "multiport", 1, multi(2, 1, []uint16{80}, nil, 0), nil},
		{"a side that multiport does not have", tcp, "multiport", 1, multi(3, 1, []uint16{80}, nil, 0), nil},
		{"multiport of any protocol", nil, "multiport", 1, multi(1, 1, []uint16{80}, nil, 0), nil},
		{
			"multiport of SCTP",
			rules.MatchProtocol{Protocols: []rules.Protocol{rules.SCTP}},
			"multiport", 1, multi(1, 1, []uint16{80}, nil, 0),
			[]rules.Match{rules.MatchPort{
				Side: rules.Destination, Ports: rules.Singles[uint16](80),
			}},
		},
		{"multiport without ports", tcp, "multiport", 1, multi(1, 0, nil, nil, 0), nil},
		{
			"a range of ports without an end", tcp, "multiport", 1, multi(1, 1, []uint16{80}, []byte{1}, 0),
			nil,
		},
		{
			"a reversed range of ports", tcp, "multiport", 1,
			multi(1, 2, []uint16{80, 79}, []byte{1}, 0), nil,
		},
		{"too many ports", tcp, "multiport", 1, multi(1, 16, []uint16{80}, nil, 0), nil},

		{
			"--ctstate INVALID", nil, "conntrack", 1, state(1, 1, 0, 1),
			[]rules.Match{rules.MatchState{States: rules.States(rules.Invalid)}},
		},
		{"! --ctstate NEW,UNTRACKED", nil, "conntrack", 2, state(2, 1, 1, 0x108), []rules.Match{
			rules.MatchState{Not: true, States: rules.States(rules.New, rules.Untracked)},
		}},
		{"--state RELATED,ESTABLISHED", nil, "conntrack", 3, state(3, 0x2001, 0, 6), []rules.Match{
			rules.MatchState{States: rules.States(rules.Established, rules.Related)},
		}},
		{"--ctstate SNAT,DNAT", nil, "conntrack", 3, state(3, 1, 0, 0xc0), []rules.Match{
			rules.MatchState{States: rules.States(rules.SNAT, rules.DNAT)},
		}},
		{"! --ctstate DNAT,NEW, of older iptables", nil, "conntrack", 1, state(1, 1, 1,
			0x88), []rules.Match{
			rules.MatchState{Not: true, States: rules.States(rules.New, rules.DNAT)},
		}},
		{"a state that does not exist", nil, "conntrack", 3, state(3, 1, 0, 0x10), nil},
		{"--ctstatus ASSURED,EXPECTED", nil, "conntrack", 3, status(3, 0, 5), []rules.Match{
			rules.MatchStatus{Status: rules.StatusAssured | rules.StatusExpected},
		}},
		{"! --ctstatus SEEN_REPLY", nil, "conntrack", 2, status(2, 0x40, 2), []rules.Match{
			rules.MatchStatus{Not: true, Status: rules.StatusSeenReply},
		}},
		{"--ctstatus CONFIRMED of older iptables", nil, "conntrack", 1, status(1, 0,
			8), []rules.Match{
			rules.MatchStatus{Status: rules.StatusConfirmed},
		}},
		{
			"--ctstatus NONE", nil, "conntrack", 3, status(3, 0, 0),
			[]rules.Match{rules.MatchStatus{}},
		},
		{"an internal status of the kernel", nil, "conntrack", 3, status(3, 0, 0x80), nil},
		{
			"--ctdir ORIGINAL", nil, "conntrack", 3, state(3, 0x1000, 0, 0),
			[]rules.Match{rules.MatchDirection{}},
		},
		{
			"--ctdir REPLY", nil, "conntrack", 1, state(1, 0x1000, 0x1000, 0),
			[]rules.Match{rules.MatchDirection{Reply: true}},
		},
		{
			"--ctstate with --ctdir", nil, "conntrack", 3, state(3, 0x1001, 0, 6),
			reads("-m conntrack --ctstate RELATED,ESTABLISHED --ctdir ORIGINAL"),
		},
		{
			"--ctstatus with --ctdir", nil, "conntrack", 3, state(3, 0x1040, 0x1000, 0),
			reads("-m conntrack --ctstatus NONE --ctdir REPLY"),
		},
		{
			"! --ctstate with ! --ctproto", nil, "conntrack", 2, state(2, 3, 3, 6),
			reads("-m conntrack ! --ctstate RELATED,ESTABLISHED ! --ctproto 0"),
		},
		{
			"--ctorigdst", nil, "conntrack", 3, state(3, 8, 0, 0),
			reads("-m conntrack --ctorigdst 0.0.0.0/0"),
		},
		{"an unknown bit of a state", nil, "conntrack", 3, state(3, 3, 0, 1<<9), nil},
		{"an unknown field of conntrack", nil, "conntrack", 3, state(3, 1<<14|2, 0, 0), nil},
		{
			"! --length 5:9", nil, "length", 0, pack(uint16(5), uint16(9), []byte{1}),
			reads("-m length ! --length 5:9"),
		},
		{"--ttl-lt 9", nil, "ttl", 0, []byte{2, 9}, reads("-m ttl --ttl-lt 9")},
		{"a ttl with an unknown mode", nil, "ttl", 0, []byte{4, 9}, nil},
		{"! --hl-eq 9", nil, "hl", 0, []byte{1, 9}, reads("-m hl ! --hl-eq 9")},
		{"--dscp", nil, "dscp", 0, []byte{9, 0}, reads("-m dscp --dscp 0x09")},
		{"! --tos 0x10/0x3f", nil, "tos", 1, []byte{0x3f, 0x10, 1}, reads("-m tos ! --tos 0x10/0x3f")},
		{"conntrack without conditions", nil, "conntrack", 3, state(3, 0, 0, 0), nil},
		{
			"a negation of a state that is not compared", nil, "conntrack", 3,
			state(3, 0x40, 1, 0), nil,
		},
		{"a newer revision of conntrack", nil, "conntrack", 4, numbers(6), []rules.Match{
			rules.Unknown{Text: "match conntrack revision 4", Data: string(numbers(6)[:1])},
		}},

		{"--state NEW,UNTRACKED of old iptables", nil, "state", 0, pack(numbers(0x48),
			zeros(4)), []rules.Match{
			rules.MatchState{States: rules.States(rules.New, rules.Untracked)},
		}},
		{"an old state that does not exist", nil, "state", 0, numbers(0x80), nil},
		{"an old state beyond 16 bits", nil, "state", 0, numbers(0x10001), nil},
		{"a truncated old state", nil, "state", 0, zeros(3), nil},

		{"--icmp-type echo-request", icmp, "icmp", 0, []byte{8, 0, 255, 0}, []rules.Match{
			rules.MatchICMP{Values: []rules.Range[uint16]{{First: 0x800, Last: 0x8ff}}},
		}},
		{"! --icmp-type 3/4", icmp, "icmp", 0, []byte{3, 4, 4, 1}, []rules.Match{
			rules.MatchICMP{Not: true, Values: []rules.Range[uint16]{{First: 0x304, Last: 0x304}}},
		}},
		{"--icmp-type any", icmp, "icmp", 0, []byte{255, 0, 255, 0}, []rules.Match{}},
		{"! --icmp-type any", icmp, "icmp", 0, []byte{255, 0, 255, 1}, []rules.Match{
			rules.MatchICMP{Not: true, Values: []rules.Range[uint16]{{First: 0, Last: 0xffff}}},
		}},
		{"--icmpv6-type 255", icmp6, "icmp6", 0, []byte{255, 0, 255, 0}, []rules.Match{
			rules.MatchICMP{V6: true, Values: []rules.Range[uint16]{{First: 0xff00, Last: 0xffff}}},
		}},
		{"icmp6 of a rule for ICMP", icmp, "icmp6", 0, []byte{1, 0, 255, 0}, nil},
		{"icmp of any protocol", nil, "icmp", 0, []byte{8, 0, 255, 0}, nil},
		{"reversed codes", icmp, "icmp", 0, []byte{8, 2, 1, 0}, nil},
		{"icmp with an unknown flag", icmp, "icmp", 0, []byte{8, 0, 255, 2}, nil},
		{"a truncated icmp", icmp, "icmp", 0, []byte{8, 0, 255}, nil},

		{"--src-type LOCAL,BROADCAST", nil, "addrtype", 1, pack([]uint16{0xc, 0},
			numbers(0)), []rules.Match{
			rules.MatchAddrType{Types: rules.AddrTypes(rules.Local, rules.Broadcast)},
		}},
		{"! --src-type MULTICAST --dst-type UNICAST", nil, "addrtype", 1, pack([]uint16{0x20, 2},
			numbers(1)), []rules.Match{
			rules.MatchAddrType{Not: true, Types: rules.AddrTypes(rules.Multicast)},
			rules.MatchAddrType{Side: rules.Destination, Types: rules.AddrTypes(rules.Unicast)},
		}},
		{"! --dst-type XRESOLVE of old iptables", nil, "addrtype", 0, pack([]uint16{0, 0x800},
			numbers(0, 1)), []rules.Match{
			rules.MatchAddrType{
				Side: rules.Destination, Not: true, Types: rules.AddrTypes(rules.ResolvedType),
			},
		}},
		{
			"--limit-iface-in", nil, "addrtype", 1, pack([]uint16{0, 4}, numbers(4)),
			reads("-m addrtype --dst-type LOCAL --limit-iface-in"),
		},
		{
			"--limit-iface-out", nil, "addrtype", 1, pack([]uint16{0, 4}, numbers(8)),
			reads("-m addrtype --dst-type LOCAL --limit-iface-out"),
		},
		{"an unknown flag of addrtype", nil, "addrtype", 1, pack([]uint16{0, 4}, numbers(16)), nil},
		{
			"a type that does not exist", nil, "addrtype", 1,
			pack([]uint16{0, 0x1000}, numbers(0)), nil,
		},
		{
			"an addrtype of old iptables with an invalid negation", nil, "addrtype", 0,
			pack([]uint16{4, 0}, numbers(2, 0)), nil,
		},
		{"a truncated addrtype", nil, "addrtype", 0, pack([]uint16{4, 0}, numbers(0)), nil},

		{"--transparent", nil, "socket", 1, []byte{1}, []rules.Match{rules.MatchSocket{}}},
		{
			"--transparent --nowildcard", nil, "socket", 3,
			[]byte{3, 0, 0, 0},
			[]rules.Match{rules.MatchSocket{Kind: "nowildcard"}},
		},
		{
			"a socket that need not be transparent", nil, "socket", 3,
			[]byte{2},
			reads("-m socket --nowildcard"),
		},
		{"a socket match of the oldest revision", nil, "socket", 0, nil, nil},
		{
			"a truncated socket match", nil, "socket", 2, nil,
			[]rules.Match{rules.Unknown{Text: "match socket revision 2"}},
		},
		{"--transparent --restore-skmark", nil, "socket", 3, []byte{5}, []rules.Match{
			rules.Unknown{Text: "-m socket --transparent --restore-skmark"},
		}},

		{"rpfilter", nil, "rpfilter", 0, []byte{0}, []rules.Match{rules.MatchReversePath{}}},
		{"--loose --validmark --accept-local --invert", nil, "rpfilter", 0, []byte{
			15, 0,
		}, []rules.Match{
			rules.MatchReversePath{Not: true, Kind: "loose validmark accept-local"},
		}},
		{
			"--accept-local", nil, "rpfilter", 0,
			[]byte{4},
			[]rules.Match{rules.MatchReversePath{Kind: "accept-local"}},
		},
		{"rpfilter with an unknown flag", nil, "rpfilter", 0, []byte{16}, nil},
		{"a truncated conntrack", nil, "conntrack", 3, state(3, 1, 0, 6)[:163], nil},

		{"--src-range", nil, "iprange", 1, pack(addr("10.0.0.1"), addr("10.0.0.9"), zeros(32),
			[]byte{1, 0, 0, 0}), []rules.Match{
			between(rules.Source, false, "10.0.0.1-10.0.0.9"),
		}},
		{"--src-range ! --dst-range", nil, "iprange", 1, pack(addr("10.0.0.1"), addr("10.0.0.9"),
			addr("1.0.0.0"), addr("2.0.0.0"), []byte{0x23, 0, 0, 0}), []rules.Match{
			between(rules.Source, false, "10.0.0.1-10.0.0.9"),
			between(rules.Destination, true, "1.0.0.0-2.0.0.0"),
		}},
		{
			"a reversed range of addresses", nil, "iprange", 1,
			pack(addr("10.0.0.9"), addr("10.0.0.1"), zeros(32), []byte{1, 0, 0, 0}),
			[]rules.Match{rules.MatchTuple{}},
		},
		{
			"a negated reversed range of addresses, and a range", nil, "iprange", 1,
			pack(addr("10.0.0.9"), addr("10.0.0.1"), addr("1.0.0.0"), addr("2.0.0.0"),
				[]byte{0x13, 0, 0, 0}),
			[]rules.Match{between(rules.Destination, false, "1.0.0.0-2.0.0.0")},
		},
		{"an iprange without a condition", nil, "iprange", 1, pack(zeros(68)), nil},
		{
			"iprange with an unknown flag", nil, "iprange", 1,
			pack(addr("10.0.0.1"), addr("10.0.0.9"), zeros(32), []byte{5, 0, 0, 0}), nil,
		},

		{"a match that the model does not represent", nil, "string", 0, zeros(5), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r rules.Rule
			if tc.protocol != nil {
				r.Matches = []rules.Match{tc.protocol}
			}
			want := slices.Concat(r.Matches, tc.want)
			if tc.want == nil {
				want = append(want, rules.Unknown{
					Text:   "match " + tc.match + " revision " + string('0'+rune(tc.revision)),
					Effect: xt.MatchEffect(tc.match),
					Data:   strings.TrimRight(string(tc.info), "\x00"),
				})
			}
			decodeMatch(&r, rules.IPv4, xt.Extension{
				Name: tc.match, Revision: tc.revision, Data: tc.info,
			})
			if diff := cmp.Diff(want, r.Matches, compareOptions()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDecodeComment(t *testing.T) {
	var r rules.Rule
	for _, text := range []string{"one\x00rest", "", "two"} {
		decodeMatch(&r, rules.IPv4, xt.Extension{
			Name: "comment", Data: append([]byte(text), zeros(256)...),
		})
	}
	if r.Comment != "one two" || r.Matches != nil {
		t.Errorf(`comment %q, matches %v; want "one two" and none`, r.Comment, r.Matches)
	}
}

func TestDecodeTarget(t *testing.T) {
	big := binary.BigEndian
	unknown := func(name string, revision uint32, info []byte, effect rules.Effect) rules.Unknown {
		return rules.Unknown{
			Text:   "target " + name + " revision " + string('0'+rune(revision)),
			Effect: effect, Data: strings.TrimRight(string(info), "\x00"),
		}
	}
	// nat4 is struct nf_nat_ipv4_multi_range_compat, nat6 struct nf_nat_range.
	nat4 := func(count, flags uint32, first, last uint16) []byte {
		return pack(numbers(count, flags), zeros(8),
			big.AppendUint16(big.AppendUint16(nil, first), last), zeros(4))
	}
	nat6 := func(flags uint32, first, last uint16, rest ...byte) []byte {
		return pack(numbers(flags), zeros(32),
			big.AppendUint16(big.AppendUint16(nil, first), last), rest)
	}
	tproxy := func(mask, value uint32, addr []byte, port uint16) []byte {
		return pack(numbers(mask, value), addr, big.AppendUint16(nil, port), zeros(6))
	}
	zone := func(flags, zone uint16, size int, rest ...byte) []byte {
		return pack(flags, zone, rest, zeros(size-4-len(rest)))
	}
	for _, tc := range []struct {
		name     string
		family   rules.Family
		target   string
		revision uint32
		info     []byte
		want     rules.Action // nil means an unknown action with the info as its Data
	}{
		{
			"--set-mark 0x53a", rules.IPv4, "MARK", 2, numbers(0x53a, allBits),
			rules.SetMark{Value: 0x53a, Mask: allBits},
		},
		{
			"--set-mark 1/15", rules.IPv4, "MARK", 2, numbers(1, 15),
			rules.SetMark{Value: 1, Mask: 15},
		},
		{"--xor-mark 1", rules.IPv4, "MARK", 2, numbers(1, 0), rules.SetMark{Value: 1}},
		{"a truncated mark", rules.IPv4, "MARK", 2, numbers(1), nil},
		{"an older revision of MARK", rules.IPv4, "MARK", 1, numbers(1, 15), nil},

		{
			"--save-mark", rules.IPv4, "CONNMARK", 1,
			pack(numbers(0, allBits, allBits), []byte{1, 0, 0, 0}),
			rules.SaveMark{},
		},
		{
			"--restore-mark", rules.IPv4, "CONNMARK", 1,
			pack(numbers(0, allBits, allBits), []byte{2, 0, 0, 0}),
			rules.RestoreMark{},
		},
		{
			"--save-mark of newer iptables", rules.IPv4, "CONNMARK", 2,
			pack(numbers(0, allBits, allBits), []byte{0, 0, 1, 0}),
			rules.SaveMark{},
		},
		{
			"a mark that is shifted and saved", rules.IPv4, "CONNMARK", 2,
			pack(numbers(0, allBits, allBits), []byte{0, 8, 1, 0}),
			unknown("CONNMARK", 2, pack(numbers(0, allBits, allBits), []byte{0, 8, 1}),
				rules.WritesConntrackMark),
		},
		{
			"a mark that is shifted and restored", rules.IPv4, "CONNMARK", 2,
			pack(numbers(0, allBits, allBits), []byte{1, 8, 2, 0}),
			unknown("CONNMARK", 2, pack(numbers(0, allBits, allBits), []byte{1, 8, 2}), rules.WritesMark),
		},
		{
			"a mark that is shifted in an unknown mode", rules.IPv4, "CONNMARK", 2,
			pack(numbers(0, allBits, allBits), []byte{1, 8, 3, 0}), nil,
		},
		{
			"--save-mark --nfmask 0xf --ctmask 0xff", rules.IPv4, "CONNMARK", 1,
			pack(numbers(0, 0xff, 15), []byte{1, 0, 0, 0}),
			rules.MixMark{Conntrack: true, ConntrackMark: allBits &^ 0xff, Mark: 15},
		},
		{
			"--restore-mark --nfmask 0xf --ctmask 0xff", rules.IPv6, "CONNMARK", 2,
			pack(numbers(0, 0xff, 15), []byte{0, 0, 2, 0}),
			rules.MixMark{Mark: allBits &^ 15, ConntrackMark: 0xff},
		},
		{
			"--set-mark 1/15 of the connection", rules.IPv4, "CONNMARK", 1,
			pack(numbers(1, 15, 0), zeros(4)),
			rules.MixMark{Conntrack: true, ConntrackMark: allBits &^ 15, Xor: 1},
		},
		{
			"--set-mark 5 of the connection", rules.IPv4, "CONNMARK", 2,
			pack(numbers(5, allBits, 0), zeros(4)),
			rules.MixMark{Conntrack: true, Xor: 5},
		},
		{
			"a connmark in an unknown mode", rules.IPv4, "CONNMARK", 1,
			pack(numbers(0, allBits, allBits), []byte{3, 0, 0, 0}), nil,
		},
		{"a truncated CONNMARK", rules.IPv4, "CONNMARK", 2, numbers(0, allBits, allBits), nil},

		{
			"--to-ports 15001", rules.IPv4, "REDIRECT", 0, nat4(1, 2, 15001, 15001),
			rules.RedirectTo{Port: 15001},
		},
		{
			"--to-ports 15001-15002", rules.IPv4, "REDIRECT", 0, nat4(1, 2, 15001, 15002),
			rules.RedirectTo{Port: 15001, Last: 15002},
		},
		{
			"--to-ports 15001 --random", rules.IPv4, "REDIRECT", 0, nat4(1, 6, 15001, 15001),
			rules.RedirectTo{Port: 15001},
		},
		{
			"--to-ports 15001-15002 --random", rules.IPv4, "REDIRECT", 0, nat4(1, 6, 15001, 15002),
			rules.Unknown{Text: "redirect to :15001-15002 random"},
		},
		{
			"--random", rules.IPv4, "REDIRECT", 0, nat4(1, 4, 0, 0),
			rules.Unknown{Text: "redirect random"},
		},
		{"reversed ports", rules.IPv4, "REDIRECT", 0, nat4(1, 2, 2, 1), nil},
		{"ports from 0 on", rules.IPv4, "REDIRECT", 0, nat4(1, 2, 0, 9), nil},
		{
			"REDIRECT to the same port", rules.IPv4, "REDIRECT", 0, nat4(1, 0, 0, 0),
			rules.RedirectTo{},
		},
		{"REDIRECT to several ranges", rules.IPv4, "REDIRECT", 0, nat4(2, 2, 1, 1), nil},
		{"REDIRECT to an address", rules.IPv4, "REDIRECT", 0, nat4(1, 3, 1, 1), nil},
		{
			"--to-ports 15001 of IPv6", rules.IPv6, "REDIRECT", 0, nat6(2, 15001, 15001),
			rules.RedirectTo{Port: 15001},
		},
		{
			"REDIRECT to the same port of IPv6", rules.IPv6, "REDIRECT", 0, nat6(0, 0, 0),
			rules.RedirectTo{},
		},
		{"REDIRECT of IPv6 with the structure of IPv4", rules.IPv6, "REDIRECT", 0, nat4(1, 2, 15001, 15001), nil},
		{"REDIRECT of family inet", rules.Inet, "REDIRECT", 0, nat6(2, 15001, 15001), nil},

		{
			"--to-destination :8080", rules.IPv4, "DNAT", 0, nat4(1, 2, 8080, 8080),
			rules.DNATPort{Port: 8080},
		},
		{
			"--to-destination :8080-8090", rules.IPv4, "DNAT", 0, nat4(1, 2, 8080, 8090),
			rules.DNATPort{Port: 8080, Last: 8090},
		},
		{
			"--to-destination 10.0.0.1:8080", rules.IPv4, "DNAT", 0,
			pack(numbers(1, 3), []byte{10, 0, 0, 1, 10, 0, 0, 1, 0x1f, 0x90, 0x1f, 0x90}),
			rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Port: 8080},
		},
		{
			"--to-destination 10.0.0.1-10.0.0.3", rules.IPv4, "DNAT", 1,
			pack(numbers(1), []byte{10, 0, 0, 1}, zeros(12), []byte{10, 0, 0, 3}, zeros(12),
				zeros(4)),
			rules.DNATTo{
				Addr: netip.MustParseAddr("10.0.0.1"), LastAddr: netip.MustParseAddr("10.0.0.3"),
			},
		},
		{
			"--to-destination fd00::1 --persistent --random", rules.IPv6, "DNAT", 2,
			pack(numbers(9), []byte{0xfd}, zeros(14), []byte{1, 0xfd}, zeros(14), []byte{1},
				zeros(8)),
			rules.DNATTo{Addr: netip.MustParseAddr("fd00::1")},
		},
		{
			"--to-destination fd00::1-fd00::2 --persistent", rules.IPv6, "DNAT", 2,
			pack(numbers(9), []byte{0xfd}, zeros(14), []byte{1, 0xfd}, zeros(14), []byte{2},
				zeros(8)),
			rules.Unknown{Text: "dnat to fd00::1-fd00::2 persistent"},
		},
		{
			"reversed addresses", rules.IPv6, "DNAT", 2,
			pack(numbers(1), []byte{0xfd}, zeros(14), []byte{2, 0xfd}, zeros(14), []byte{1},
				zeros(8)), nil,
		},
		{"DNAT without a change", rules.IPv4, "DNAT", 0, nat4(1, 0, 0, 0), nil},
		{
			"--to-destination :8080 of IPv6", rules.IPv6, "DNAT", 1, nat6(2, 8080, 8080),
			rules.DNATPort{Port: 8080},
		},
		{
			"--to-destination :8080 of newer iptables", rules.IPv4, "DNAT", 2,
			nat6(2, 8080, 8080, zeros(4)...),
			rules.DNATPort{Port: 8080},
		},
		{
			"--to-destination :8080-8090/90", rules.IPv4, "DNAT", 2,
			nat6(0x22, 8080, 8080, zeros(4)...), nil,
		},
		{
			"--to-destination :8080 --persistent", rules.IPv6, "DNAT", 2,
			nat6(10, 8080, 8080, zeros(4)...),
			rules.DNATPort{Port: 8080},
		},
		{"the oldest revision of DNAT, for IPv6", rules.IPv6, "DNAT", 0, nat4(1, 2, 8080, 8080), nil},

		{
			"--reject-with icmp-port-unreachable", rules.IPv4, "REJECT", 0, numbers(3, 0),
			rules.Reject{With: "icmp port-unreachable"},
		},
		{
			"--reject-with tcp-reset", rules.IPv4, "REJECT", 0, numbers(7),
			rules.Reject{With: "tcp reset"},
		},
		{
			"--reject-with icmp-admin-prohibited", rules.IPv4, "REJECT", 0, numbers(8),
			rules.Reject{With: "icmp admin-prohibited"},
		},
		{"the reject type of an echo reply", rules.IPv4, "REJECT", 0, numbers(4), nil},
		{"a reject type that does not exist", rules.IPv4, "REJECT", 0, numbers(9), nil},
		{"a truncated REJECT", rules.IPv4, "REJECT", 0, nil, nil},
		{
			"--reject-with icmp6-adm-prohibited", rules.IPv6, "REJECT", 0, numbers(1),
			rules.Reject{With: "icmpv6 admin-prohibited"},
		},
		{
			"--reject-with tcp-reset of IPv6", rules.IPv6, "REJECT", 0, numbers(6),
			rules.Reject{With: "tcp reset"},
		},
		{"the reject type not-neighbor", rules.IPv6, "REJECT", 0, numbers(2), nil},
		{"REJECT of family inet", rules.Inet, "REJECT", 0, numbers(3), nil},

		{
			"--on-port 15006", rules.IPv4, "TPROXY", 1, tproxy(allBits, 0x539, zeros(16), 15006),
			rules.TProxyDrop{Port: 15006, Value: 0x539, Mask: allBits},
		},
		{
			"an older revision of TPROXY", rules.IPv4, "TPROXY", 0, tproxy(allBits, 0x539, zeros(4), 15006),
			rules.TProxyDrop{Port: 15006, Value: 0x539, Mask: allBits},
		},
		{
			"an older revision of TPROXY of IPv6", rules.IPv6, "TPROXY", 0, tproxy(allBits, 0x539, zeros(4), 15006),
			nil,
		},
		{
			"--on-ip", rules.IPv4, "TPROXY", 1,
			tproxy(allBits, 0x539, append([]byte{127, 0, 0, 1}, zeros(12)...), 15006),
			rules.TProxyDrop{
				Port: 15006, Value: 0x539, Mask: allBits, Addr: netip.MustParseAddr("127.0.0.1"),
			},
		},
		{
			"--on-ip of IPv6", rules.IPv6, "TPROXY", 1,
			tproxy(allBits, 0x539, append(zeros(15), 1), 15006),
			rules.TProxyDrop{
				Port: 15006, Value: 0x539, Mask: allBits, Addr: netip.MustParseAddr("::1"),
			},
		},
		{
			"--on-port 0", rules.IPv4, "TPROXY", 1, tproxy(allBits, 0x539, zeros(16), 0),
			rules.TProxyDrop{Value: 0x539, Mask: allBits},
		},
		{
			"--tproxy-mark with bits to flip", rules.IPv4, "TPROXY", 1, tproxy(1, 3, zeros(16), 1),
			rules.TProxyDrop{Port: 1, Value: 3, Mask: 1},
		},

		{"--zone 1", rules.IPv4, "CT", 0, zone(0, 1, 40), rules.SetZone{Zone: 1}},
		{"--zone 1 of newer iptables", rules.IPv4, "CT", 1, zone(0, 1, 72), rules.SetZone{Zone: 1}},
		{
			"--zone 65535 of the newest iptables", rules.IPv6, "CT", 2, zone(0, 65535, 72),
			rules.SetZone{Zone: 65535},
		},
		{
			"--zone 1 and a pointer of the kernel", rules.IPv4, "CT", 0, pack(zone(0, 1, 32), numbers(7, 7)),
			rules.SetZone{Zone: 1},
		},
		{"--notrack", rules.IPv4, "CT", 1, zone(1, 0, 72), rules.Notrack{}},
		{"-j NOTRACK of newer iptables", rules.IPv6, "CT", 2, zone(3, 0, 72), rules.Notrack{}},
		{"NOTRACK", rules.IPv4, "NOTRACK", 0, nil, rules.Notrack{}},
		{
			"--zone-orig 1", rules.IPv4, "CT", 2, zone(4, 1, 72),
			rules.Unknown{Text: "-j CT --zone-orig 1"},
		},
		{
			"--zone mark", rules.IPv4, "CT", 2, zone(16, 0, 72),
			rules.Unknown{Text: "-j CT --zone mark"},
		},
		{
			"--zone 1 --helper ftp", rules.IPv4, "CT", 2,
			zone(0, 1, 72, append(zeros(8), "ftp"...)...),
			rules.SetZone{Zone: 1, Helper: "ftp"},
		},
		{
			"--zone 1 --ctevents new", rules.IPv4, "CT", 2, zone(0, 1, 72, 1),
			rules.Unknown{Text: "-j CT --zone 1 --ctevents 0x1"},
		},
		{
			"--helper ftp and a pointer of the kernel", rules.IPv4, "CT", 0,
			pack(zone(0, 0, 32, append(zeros(8), "ftp"...)...), numbers(7, 7)),
			rules.SetZone{Helper: "ftp"},
		},
		{"a truncated CT", rules.IPv4, "CT", 2, zone(0, 1, 64), nil},

		{"LOG", rules.IPv4, "LOG", 0, zeros(32), rules.NoEffect{Text: "log"}},
		{"NFLOG", rules.IPv4, "NFLOG", 0, zeros(80), rules.NoEffect{Text: "log group 0"}},
		{"TRACE", rules.IPv4, "TRACE", 0, nil, rules.NoEffect{Text: "meta nftrace set 1"}},
		{"AUDIT", rules.IPv4, "AUDIT", 0, zeros(8), rules.NoEffect{Text: "log level audit"}},
		{
			"RATEEST", rules.IPv6, "RATEEST", 0, zeros(32),
			rules.Unknown{
				Text: "target RATEEST revision 0", Effect: rules.Writes, State: "rateest",
			},
		},
		{"another revision of LOG", rules.IPv4, "LOG", 1, zeros(32), nil},
		{
			"SET", rules.IPv4, "SET", 3, zeros(64),
			rules.Unknown{Text: "target SET revision 3", Data: rules.NoData},
		},
		{"TTL", rules.IPv4, "TTL", 0, []byte{2, 1}, xt.HopLimit(rules.IPv4, xt.DecrementHops, 1)},
		{"HL", rules.IPv6, "HL", 0, []byte{0, 5}, xt.HopLimit(rules.IPv6, xt.SetHops, 5)},
		{"an unknown mode of TTL", rules.IPv4, "TTL", 0, []byte{3, 1}, nil},
		{"DSCP", rules.IPv4, "DSCP", 0, []byte{1}, xt.DSCP(1)},
		{"TOS", rules.IPv4, "TOS", 1, []byte{4, 0xff}, xt.TOS(4, 0xff)},
		{"TCPMSS", rules.IPv4, "TCPMSS", 0, []byte{0xff, 0xff}, xt.TCPMSS(xt.ClampMSS)},
		{"CHECKSUM", rules.IPv4, "CHECKSUM", 0, []byte{1}, xt.FillChecksum()},
		{"CLASSIFY", rules.IPv4, "CLASSIFY", 0, numbers(1<<16 | 2), xt.Classify(1<<16 | 2)},
		{"another revision of TOS", rules.IPv4, "TOS", 0, []byte{4}, nil},
		{"a target that the model does not represent", rules.IPv4, "SYNPROXY", 0, numbers(1), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want == nil {
				tc.want = unknown(tc.target, tc.revision, tc.info, rules.AnyEffect)
			}
			x := xt.Extension{Name: tc.target, Revision: tc.revision, Data: tc.info}
			if diff := cmp.Diff(tc.want, xt.DecodeTarget(tc.family, x), compareOptions()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// FuzzDecode checks that the decoder does not read outside of a structure, and that matches and
// targets that can be encoded are equal after encoding and decoding.
func FuzzDecode(f *testing.F) {
	for _, x := range samples() {
		f.Add(x.Name, x.Revision, x.Data, false)
		f.Add(x.Name, x.Revision, x.Data, true)
	}
	f.Fuzz(func(t *testing.T, name string, revision uint32, info []byte, isIPv6 bool) {
		family := map[bool]rules.Family{false: rules.IPv4, true: rules.IPv6}[isIPv6]
		x := xt.Extension{Name: name, Revision: revision, Data: info}
		for _, protocol := range []rules.MatchProtocol{tcp, udp} {
			r := rules.Rule{Matches: []rules.Match{protocol}}
			decodeMatch(&r, family, x)
			checkMatches(t, family, protocol, r.Matches[1:])
		}
		switch a := xt.DecodeTarget(family, x).(type) {
		case nil:
			t.Error("DecodeTarget returned nil, want an action")
		case rules.Unknown, rules.NoEffect:
		case rules.SetZone:
			if a.Helper == "" { // a helper cannot be encoded
				checkTarget(t, family, a)
			}
		default:
			checkTarget(t, family, a)
		}
	})
}

// checkTarget checks that a target is equal after encoding and decoding.
func checkTarget(t *testing.T, family rules.Family, a rules.Action) {
	t.Helper()
	x, err := xt.EncodeTarget(family, a)
	if err != nil {
		t.Fatalf("encode %s: %v", a, err)
	}
	if got := xt.DecodeTarget(family, x); got != a {
		t.Errorf("%s is encoded as %v and decoded as %s", a, x, got)
	}
}

// checkMatches checks that matches of a rule for the protocol are equal after encoding and
// decoding.
func checkMatches(
	t *testing.T, family rules.Family, protocol rules.MatchProtocol, matches []rules.Match,
) {
	t.Helper()
	for _, m := range matches {
		switch m.(type) {
		case rules.Unknown, rules.MatchAddrType, rules.MatchReversePath, rules.MatchSocket,
			rules.MatchTuple:
			return // these matches cannot be encoded
		}
	}
	list, err := xt.EncodeMatches(protocol.Protocols[0], matches)
	if err != nil {
		t.Fatalf("encode %v: %v", matches, err)
	}
	r := rules.Rule{Matches: []rules.Match{protocol}}
	for _, x := range list {
		decodeMatch(&r, family, x)
	}
	if diff := cmp.Diff(matches, r.Matches[1:], compareOptions(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-decoded +encoded and decoded again:\n%s", diff)
	}
}
