package xt_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// packed writes a structure: numbers of the machine in their sizes, one after the other, and bytes.
func packed(fields ...any) []byte {
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

// numbers writes 32-bit numbers.
func numbers(list ...uint32) []byte { return packed(list) }

// zeros are n bytes.
func zeros(n int) []byte { return make([]byte, n) }

const all = ^uint32(0)

var (
	tcp = rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
	udp = rules.MatchProtocol{Protocols: []rules.Protocol{rules.UDP}}
)

// comparers returns options for comparing matches.
func comparers() cmp.Option {
	return cmp.Options{cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b })}
}

func TestDecodeMatch(t *testing.T) {
	ids := func(first, last uint32) []rules.IDRange { return []rules.IDRange{{First: first, Last: last}} }
	port := func(side rules.Side, not bool, ranges ...rules.PortRange) rules.MatchPort {
		return rules.MatchPort{Side: side, Not: not, Ports: ranges}
	}
	// tcpInfo is struct xt_tcp with ports of both sides.
	tcpInfo := func(source, destination [2]uint16, rest ...byte) []byte {
		return packed(source[:], destination[:], rest)
	}
	whole, web := [2]uint16{0, 65535}, [2]uint16{80, 80}
	owner := func(uid, gid [2]uint32, bits ...byte) []byte { return packed(uid[:], gid[:], bits, zeros(2)) }
	someone, group := [2]uint32{1337, 1337}, [2]uint32{1338, 1339}
	multi := func(direction, count byte, ports []uint16, flags []byte, invert byte) []byte {
		ports, flags = append(ports, make([]uint16, 15-len(ports))...), append(flags, zeros(15-len(flags))...)
		return packed([]byte{direction, count}, ports, flags, []byte{invert})
	}
	state := func(revision uint32, asked, negated, mask uint16) []byte {
		b := packed(zeros(146), asked, negated)
		if revision == 1 {
			return packed(b, []byte{byte(mask), 0})
		}
		return packed(b, mask, zeros(map[uint32]int{2: 4, 3: 12}[revision]))
	}
	addr := func(text string) []byte {
		a := netip.MustParseAddr(text)
		return append(a.AsSlice(), zeros(16-len(a.AsSlice()))...)
	}
	between := func(side rules.Side, not bool, text string) rules.MatchAddr {
		return rules.MatchAddr{Side: side, Not: not, Ranges: []netipx.IPRange{netipx.MustParseIPRange(text)}}
	}
	for _, tc := range []struct {
		name     string
		protocol rules.Match // what the rule compares already
		match    string
		revision uint32
		info     []byte
		want     []rules.Match // nil if it is unknown
	}{
		{"--mark 0x539", nil, "mark", 1, packed(numbers(0x539, all), zeros(4)), []rules.Match{rules.MatchMark{Value: 0x539, Mask: all}}},
		{
			"! --mark 0x1/0xf", nil, "mark", 1, packed(numbers(1, 15), []byte{1, 0, 0, 0}),
			[]rules.Match{rules.MatchMark{Not: true, Value: 1, Mask: 15}},
		},
		{"an older mark", nil, "mark", 0, packed(numbers(1, 15), zeros(4)), nil},
		{"a mark cut short", nil, "mark", 1, numbers(1, 15), nil},
		{
			"connmark", nil, "connmark", 1, packed(numbers(1, all), zeros(4)),
			[]rules.Match{rules.MatchMark{Conntrack: true, Value: 1, Mask: all}},
		},

		{"--uid-owner 1337", nil, "owner", 1, owner(someone, someone, 1, 0), []rules.Match{rules.MatchOwner{IDs: ids(1337, 1337)}}},
		{"! --gid-owner 1338-1339", nil, "owner", 1, owner(someone, group, 2, 2), []rules.Match{
			rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: ids(1338, 1339)},
		}},
		{"user and not group", nil, "owner", 1, owner(someone, group, 3, 2), []rules.Match{
			rules.MatchOwner{IDs: ids(1337, 1337)}, rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: ids(1338, 1339)},
		}},
		{"--socket-exists", nil, "owner", 1, owner(someone, someone, 4, 0), []rules.Match{rules.MatchOwner{IDs: ids(0, all)}}},
		{"! --socket-exists", nil, "owner", 1, owner(someone, someone, 4, 4), []rules.Match{
			rules.MatchOwner{Not: true, Socketless: true, IDs: ids(0, all)},
		}},
		{
			"--socket-exists ! --uid-owner", nil, "owner", 1, owner(someone, someone, 5, 1),
			[]rules.Match{rules.MatchOwner{Not: true, IDs: ids(1337, 1337)}},
		},
		{"no socket, but a user", nil, "owner", 1, owner(someone, someone, 5, 4), nil},
		{"--suppl-groups", nil, "owner", 1, owner(someone, someone, 10, 0), nil},
		{"an owner of nobody", nil, "owner", 1, owner(someone, someone, 0, 0), nil},
		{"a negation of what is not asked for", nil, "owner", 1, owner(someone, group, 1, 2), nil},
		{"an owner whose range is reversed", nil, "owner", 1, owner([2]uint32{2, 1}, group, 1, 0), nil},
		{"an owner cut short", nil, "owner", 1, owner(someone, group, 1, 0)[:19], nil},

		{"--dport 80", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 0), []rules.Match{port(rules.Destination, false, rules.Single[uint16](80))}},
		{"! --sport 80:90 --tcp-flags SYN,ACK SYN", tcp, "tcp", 0, tcpInfo([2]uint16{80, 90}, whole, 0, 0x12, 2, 1), []rules.Match{
			port(rules.Source, true, rules.PortRange{First: 80, Last: 90}), rules.MatchTCPFlags{Mask: rules.SYN | rules.ACK, Value: rules.SYN},
		}},
		{"! --syn", tcp, "tcp", 0, tcpInfo(whole, whole, 0, 0x17, 2, 4), []rules.Match{
			rules.MatchTCPFlags{Not: true, Mask: rules.FIN | rules.SYN | rules.RST | rules.ACK, Value: rules.SYN},
		}},
		{"-m tcp alone", tcp, "tcp", 0, tcpInfo(whole, whole, 0, 0, 0, 0), []rules.Match{}},
		{
			"no port at all", tcp, "tcp", 0, tcpInfo(whole, whole, 0, 0, 0, 2),
			[]rules.Match{port(rules.Destination, true, rules.PortRange{Last: 65535})},
		},
		{"tcp of a rule for UDP", udp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 0), nil},
		{"tcp of a rule for any protocol", nil, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 0), nil},
		{"--tcp-option", tcp, "tcp", 0, tcpInfo(whole, web, 2, 0, 0, 0), nil},
		{"! --tcp-option", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0, 8), nil},
		{"flags that the model has not", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0x40, 0, 0), nil},
		{"ports that are reversed", tcp, "tcp", 0, tcpInfo([2]uint16{9, 8}, web, 0, 0, 0, 0), nil},
		{"tcp cut short", tcp, "tcp", 0, tcpInfo(whole, web, 0, 0, 0), nil},
		{
			"-p udp --sport 53", udp, "udp", 0, packed([]uint16{53, 53, 0, 65535}, zeros(2)),
			[]rules.Match{port(rules.Source, false, rules.Single[uint16](53))},
		},
		{
			"-p udp ! --dport 53", udp, "udp", 0, packed([]uint16{0, 65535, 53, 53}, []byte{2, 0}),
			[]rules.Match{port(rules.Destination, true, rules.Single[uint16](53))},
		},
		{"udp with an unknown bit", udp, "udp", 0, packed([]uint16{0, 65535, 53, 53}, []byte{4, 0}), nil},
		{"udp of a rule for TCP", tcp, "udp", 0, packed([]uint16{53, 53, 0, 65535}, zeros(2)), nil},

		{"--dports 443,80:90", tcp, "multiport", 1, multi(1, 3, []uint16{443, 80, 90}, []byte{0, 1, 0}, 0), []rules.Match{
			port(rules.Destination, false, rules.PortRange{First: 80, Last: 90}, rules.Single[uint16](443)),
		}},
		{
			"! --sports 1,2 of UDP", udp, "multiport", 1, multi(0, 2, []uint16{1, 2}, nil, 1),
			[]rules.Match{port(rules.Source, true, rules.Singles[uint16](1, 2)...)},
		},
		{"--ports", tcp, "multiport", 1, multi(2, 1, []uint16{80}, nil, 0), nil},
		{"multiport of any protocol", nil, "multiport", 1, multi(1, 1, []uint16{80}, nil, 0), nil},
		{
			"multiport of SCTP",
			rules.MatchProtocol{Protocols: []rules.Protocol{rules.SCTP}},
			"multiport", 1, multi(1, 1, []uint16{80}, nil, 0),
			nil,
		},
		{"multiport of none", tcp, "multiport", 1, multi(1, 0, nil, nil, 0), nil},
		{"a range without an end", tcp, "multiport", 1, multi(1, 1, []uint16{80}, []byte{1}, 0), nil},
		{"a range that is reversed", tcp, "multiport", 1, multi(1, 2, []uint16{80, 79}, []byte{1}, 0), nil},
		{"too many ports", tcp, "multiport", 1, multi(1, 16, []uint16{80}, nil, 0), nil},

		{"--ctstate INVALID", nil, "conntrack", 1, state(1, 1, 0, 1), []rules.Match{rules.MatchState{States: rules.States(rules.Invalid)}}},
		{"! --ctstate NEW,UNTRACKED", nil, "conntrack", 2, state(2, 1, 1, 0x108), []rules.Match{
			rules.MatchState{Not: true, States: rules.States(rules.New, rules.Untracked)},
		}},
		{"--state RELATED,ESTABLISHED", nil, "conntrack", 3, state(3, 0x2001, 0, 6), []rules.Match{
			rules.MatchState{States: rules.States(rules.Established, rules.Related)},
		}},
		{"--ctstate SNAT", nil, "conntrack", 3, state(3, 1, 0, 0x40), nil},
		{"--ctproto", nil, "conntrack", 3, state(3, 3, 0, 6), nil},
		{"a newer conntrack", nil, "conntrack", 4, state(3, 1, 0, 6), nil},
		{"conntrack cut short", nil, "conntrack", 3, state(3, 1, 0, 6)[:163], nil},

		{"--src-range", nil, "iprange", 1, packed(addr("10.0.0.1"), addr("10.0.0.9"), zeros(32), []byte{1, 0, 0, 0}), []rules.Match{
			between(rules.Source, false, "10.0.0.1-10.0.0.9"),
		}},
		{"--src-range ! --dst-range", nil, "iprange", 1, packed(addr("10.0.0.1"), addr("10.0.0.9"), addr("1.0.0.0"), addr("2.0.0.0"), []byte{0x23, 0, 0, 0}), []rules.Match{
			between(rules.Source, false, "10.0.0.1-10.0.0.9"), between(rules.Destination, true, "1.0.0.0-2.0.0.0"),
		}},
		{"a reversed range", nil, "iprange", 1, packed(addr("10.0.0.9"), addr("10.0.0.1"), zeros(32), []byte{1, 0, 0, 0}), nil},
		{"a range of nothing", nil, "iprange", 1, packed(zeros(68)), nil},
		{"a range with an unknown bit", nil, "iprange", 1, packed(addr("10.0.0.1"), addr("10.0.0.9"), zeros(32), []byte{5, 0, 0, 0}), nil},

		{"another match", nil, "limit", 0, zeros(40), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r rules.Rule
			if tc.protocol != nil {
				r.Matches = []rules.Match{tc.protocol}
			}
			want := slices.Concat(r.Matches, tc.want)
			if tc.want == nil {
				want = append(want, rules.Unknown{Text: "match " + tc.match + " revision " + string('0'+rune(tc.revision))})
			}
			xt.DecodeMatch(&r, rules.IPv4, xt.Extension{Name: tc.match, Revision: tc.revision, Data: tc.info})
			if diff := cmp.Diff(want, r.Matches, comparers()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDecodeComment(t *testing.T) {
	var r rules.Rule
	for _, text := range []string{"one\x00rest", "", "two"} {
		xt.DecodeMatch(&r, rules.IPv4, xt.Extension{Name: "comment", Data: append([]byte(text), zeros(256)...)})
	}
	if r.Comment != "one two" || r.Matches != nil {
		t.Errorf("comment %q, matches %v", r.Comment, r.Matches)
	}
}

func TestDecodeTarget(t *testing.T) {
	big := binary.BigEndian
	// nat4 is struct nf_nat_ipv4_multi_range_compat, nat6 struct nf_nat_range.
	nat4 := func(count, flags uint32, first, last uint16) []byte {
		return packed(numbers(count, flags), zeros(8), big.AppendUint16(big.AppendUint16(nil, first), last), zeros(4))
	}
	nat6 := func(flags uint32, first, last uint16, rest ...byte) []byte {
		return packed(numbers(flags), zeros(32), big.AppendUint16(big.AppendUint16(nil, first), last), rest)
	}
	tproxy := func(mask, value uint32, addr []byte, port uint16) []byte {
		return packed(numbers(mask, value), addr, big.AppendUint16(nil, port), zeros(6))
	}
	zone := func(flags, zone uint16, size int, rest ...byte) []byte {
		return packed(flags, zone, rest, zeros(size-4-len(rest)))
	}
	for _, tc := range []struct {
		name     string
		family   rules.Family
		target   string
		revision uint32
		info     []byte
		want     rules.Action // nil if it is unknown
	}{
		{"--set-mark 0x53a", rules.IPv4, "MARK", 2, numbers(0x53a, all), rules.SetMark{Value: 0x53a, Mask: all}},
		{"--set-mark 1/15", rules.IPv4, "MARK", 2, numbers(1, 15), rules.SetMark{Value: 1, Mask: 15}},
		{"--xor-mark 1", rules.IPv4, "MARK", 2, numbers(1, 0), nil},
		{"a mark cut short", rules.IPv4, "MARK", 2, numbers(1), nil},
		{"an older mark", rules.IPv4, "MARK", 1, numbers(1, 15), nil},

		{"--save-mark", rules.IPv4, "CONNMARK", 1, packed(numbers(0, all, all), []byte{1, 0, 0, 0}), rules.SaveMark{}},
		{"--restore-mark", rules.IPv4, "CONNMARK", 1, packed(numbers(0, all, all), []byte{2, 0, 0, 0}), rules.RestoreMark{}},
		{"--save-mark of newer iptables", rules.IPv4, "CONNMARK", 2, packed(numbers(0, all, all), []byte{0, 0, 1, 0}), rules.SaveMark{}},
		{"a shifted mark", rules.IPv4, "CONNMARK", 2, packed(numbers(0, all, all), []byte{0, 8, 1, 0}), nil},
		{"--save-mark of some bits", rules.IPv4, "CONNMARK", 1, packed(numbers(0, all, 15), []byte{1, 0, 0, 0}), nil},
		{"--set-mark of the connection", rules.IPv4, "CONNMARK", 1, packed(numbers(0, all, all), zeros(4)), nil},
		{"a connmark cut short", rules.IPv4, "CONNMARK", 2, numbers(0, all, all), nil},

		{"--to-ports 15001", rules.IPv4, "REDIRECT", 0, nat4(1, 2, 15001, 15001), rules.RedirectTo{Port: 15001}},
		{"--to-ports 15001-15002", rules.IPv4, "REDIRECT", 0, nat4(1, 2, 15001, 15002), nil},
		{"--to-ports 15001 --random", rules.IPv4, "REDIRECT", 0, nat4(1, 6, 15001, 15001), nil},
		{"REDIRECT to the same port", rules.IPv4, "REDIRECT", 0, nat4(1, 0, 0, 0), nil},
		{"REDIRECT to several ranges", rules.IPv4, "REDIRECT", 0, nat4(2, 2, 1, 1), nil},
		{"--to-ports 15001 of IPv6", rules.IPv6, "REDIRECT", 0, nat6(2, 15001, 15001), rules.RedirectTo{Port: 15001}},
		{"the other family's structure", rules.IPv6, "REDIRECT", 0, nat4(1, 2, 15001, 15001), nil},
		{"a REDIRECT of no family", rules.Inet, "REDIRECT", 0, nat6(2, 15001, 15001), nil},

		{"--to-destination :8080", rules.IPv4, "DNAT", 0, nat4(1, 2, 8080, 8080), rules.DNATPort{Port: 8080}},
		{"--to-destination 10.0.0.1:8080", rules.IPv4, "DNAT", 0, nat4(1, 3, 8080, 8080), nil},
		{"--to-destination :8080 of IPv6", rules.IPv6, "DNAT", 1, nat6(2, 8080, 8080), rules.DNATPort{Port: 8080}},
		{"--to-destination :8080 of newer iptables", rules.IPv4, "DNAT", 2, nat6(2, 8080, 8080, zeros(4)...), rules.DNATPort{Port: 8080}},
		{"--to-destination :8080-8090/90", rules.IPv4, "DNAT", 2, nat6(0x22, 8080, 8080, zeros(4)...), nil},
		{"--to-destination :8080 --persistent", rules.IPv6, "DNAT", 2, nat6(10, 8080, 8080, zeros(4)...), nil},
		{"the old DNAT in IPv6", rules.IPv6, "DNAT", 0, nat4(1, 2, 8080, 8080), nil},

		{
			"--on-port 15006", rules.IPv4, "TPROXY", 1, tproxy(all, 0x539, zeros(16), 15006),
			rules.TProxyDrop{Port: 15006, Value: 0x539, Mask: all},
		},
		{
			"an older TPROXY", rules.IPv4, "TPROXY", 0, tproxy(all, 0x539, zeros(4), 15006),
			rules.TProxyDrop{Port: 15006, Value: 0x539, Mask: all},
		},
		{"an older TPROXY of IPv6", rules.IPv6, "TPROXY", 0, tproxy(all, 0x539, zeros(4), 15006), nil},
		{"--on-ip", rules.IPv4, "TPROXY", 1, tproxy(all, 0x539, append([]byte{127, 0, 0, 1}, zeros(12)...), 15006), nil},
		{"--on-port 0", rules.IPv4, "TPROXY", 1, tproxy(all, 0x539, zeros(16), 0), nil},
		{"--tproxy-mark with bits to flip", rules.IPv4, "TPROXY", 1, tproxy(1, 3, zeros(16), 1), nil},

		{"--zone 1", rules.IPv4, "CT", 0, zone(0, 1, 40), rules.SetZone{Zone: 1}},
		{"--zone 1 of newer iptables", rules.IPv4, "CT", 1, zone(0, 1, 72), rules.SetZone{Zone: 1}},
		{"--zone 65535 of the newest", rules.IPv6, "CT", 2, zone(0, 65535, 72), rules.SetZone{Zone: 65535}},
		{"the kernel's pointer", rules.IPv4, "CT", 0, packed(zone(0, 1, 32), numbers(7, 7)), rules.SetZone{Zone: 1}},
		{"--notrack", rules.IPv4, "CT", 1, zone(1, 0, 72), nil},
		{"--zone-orig 1", rules.IPv4, "CT", 2, zone(4, 1, 72), nil},
		{"--zone 1 --helper ftp", rules.IPv4, "CT", 2, zone(0, 1, 72, append(zeros(8), "ftp"...)...), nil},
		{"--zone 1 --ctevents new", rules.IPv4, "CT", 2, zone(0, 1, 72, 1), nil},
		{"CT cut short", rules.IPv4, "CT", 2, zone(0, 1, 64), nil},

		{"LOG", rules.IPv4, "LOG", 0, zeros(32), rules.Count{}},
		{"NFLOG", rules.IPv4, "NFLOG", 0, zeros(80), rules.Count{}},
		{"TRACE", rules.IPv4, "TRACE", 0, nil, rules.Count{}},
		{"another target", rules.IPv4, "REJECT", 0, zeros(8), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want == nil {
				tc.want = rules.Unknown{Text: "target " + tc.target + " revision " + string('0'+rune(tc.revision))}
			}
			x := xt.Extension{Name: tc.target, Revision: tc.revision, Data: tc.info}
			if diff := cmp.Diff(tc.want, xt.DecodeTarget(tc.family, x)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Nothing is read outside of a structure, and of each something is said, if only that nothing is known. What is known is encoded to
// what means the same.
func FuzzDecode(f *testing.F) {
	for _, x := range samples() {
		f.Add(x.Name, x.Revision, x.Data, true)
	}
	f.Fuzz(func(t *testing.T, name string, revision uint32, info []byte, six bool) {
		family := map[bool]rules.Family{false: rules.IPv4, true: rules.IPv6}[six]
		x := xt.Extension{Name: name, Revision: revision, Data: info}
		for _, protocol := range []rules.MatchProtocol{tcp, udp} {
			r := rules.Rule{Matches: []rules.Match{protocol}}
			xt.DecodeMatch(&r, family, x)
			if _, unknown := r.Matches[len(r.Matches)-1].(rules.Unknown); !unknown {
				reencode(t, family, protocol, r.Matches[1:])
			}
		}
		switch a := xt.DecodeTarget(family, x).(type) {
		case nil:
			t.Error("nothing")
		case rules.Unknown, rules.Count:
		default:
			again, err := xt.EncodeTarget(family, a)
			if err != nil || xt.DecodeTarget(family, again) != a {
				t.Errorf("%s becomes %v, error %v", a, again, err)
			}
		}
	})
}

// reencode holds that matches that were decoded are encoded to the same.
func reencode(t *testing.T, family rules.Family, protocol rules.MatchProtocol, matches []rules.Match) {
	t.Helper()
	list, err := xt.EncodeMatches(protocol.Protocols[0], matches)
	if err != nil {
		t.Fatalf("%v: %v", matches, err)
	}
	r := rules.Rule{Matches: []rules.Match{protocol}}
	for _, x := range list {
		xt.DecodeMatch(&r, family, x)
	}
	if diff := cmp.Diff(matches, r.Matches[1:], comparers()); len(matches)+len(r.Matches) > 1 && diff != "" {
		t.Errorf("-decoded +encoded and decoded again:\n%s", diff)
	}
}
