package xt_test

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// encodable contains matches of a rule for TCP, with their bytes on little-endian machines.
// iptables 1.8.9 writes the same bytes, except that it uses newer revisions of some matches.
var encodable = []struct {
	match rules.Match
	want  string // name, revision and bytes, without zeros at the end
}{
	{
		rules.MatchPort{Side: rules.Destination, Ports: rules.Singles[uint16](443)},
		"tcp 0 0000ffffbb01bb01",
	},
	{
		rules.MatchPort{Not: true, Ports: []rules.PortRange{{First: 80, Last: 90}}},
		"tcp 0 50005a000000ffff00000001",
	},
	{
		rules.MatchTCPFlags{Not: true, Mask: rules.SYN | rules.ACK, Value: rules.SYN},
		"tcp 0 0000ffff0000ffff00120204",
	},
	{
		rules.MatchPort{
			Side: rules.Destination, Not: true,
			Ports: []rules.PortRange{{First: 53, Last: 53}, {First: 80, Last: 90}},
		},
		"multiport 1 0103350050005a00" + strings.Repeat("00", 25) + "01" +
			strings.Repeat("00", 13) + "01",
	},
	{
		rules.MatchOwner{IDs: rules.Singles[uint32](1337)},
		"owner 1 39050000390500000000000000000000" + "01",
	},
	{
		rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: rules.Singles[uint32](7)},
		"owner 1 000000000000000007000000070000000202",
	},
	{
		rules.MatchOwner{Not: true, IDs: rules.Singles[uint32](7)},
		"owner 1 070000000700000000000000000000000501",
	},
	{
		rules.MatchOwner{IDs: []rules.IDRange{{First: 0, Last: allBits}}},
		"owner 1 0000000000000000000000000000000004",
	},
	{
		rules.MatchOwner{Not: true, Socketless: true, IDs: []rules.IDRange{{First: 0, Last: allBits}}},
		"owner 1 000000000000000000000000000000000404",
	},
	{
		rules.MatchCgroup{Path: "a/b", Level: 2},
		"cgroup 2 01000000" + "612f62",
	},
	{rules.MatchMark{Not: true, Value: 0x539, Mask: allBits}, "mark 1 39050000ffffffff01"},
	{rules.MatchMark{Conntrack: true, Value: 1, Mask: 15}, "connmark 1 010000000f"},
	{
		rules.MatchState{Not: true, States: rules.States(rules.New, rules.Untracked)},
		"conntrack 3 " + strings.Repeat("00", 146) + "010001000801",
	},
	{
		rules.MatchState{States: rules.States(rules.SNAT, rules.DNAT)},
		"conntrack 3 " + strings.Repeat("00", 146) + "01000000c0",
	},
	{
		rules.MatchStatus{Not: true, Status: rules.StatusSeenReply},
		"conntrack 3 " + strings.Repeat("00", 146) + "40004000000002",
	},
	{rules.MatchDirection{Reply: true}, "conntrack 3 " + strings.Repeat("00", 146) + "00100010"},
	{
		rules.MatchAddr{
			Side:   rules.Destination,
			Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.1-10.0.0.3")},
		},
		"iprange 1 " + strings.Repeat("00", 32) + "0a000001" + strings.Repeat("00", 12) +
			"0a000003" + strings.Repeat("00", 12) + "02",
	},
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// targets contains actions of rules of IPv4 and IPv6, with the bytes of their targets on
// little-endian machines.
var targets = []struct {
	family rules.Family
	action rules.Action
	want   string // as in encodable
}{
	{rules.IPv4, rules.SetMark{Value: 0x53a, Mask: allBits}, "MARK 2 3a050000ffffffff"},
	{rules.IPv6, rules.SetMark{Value: 3, Mask: 1}, "MARK 2 0300000001"},
	{
		rules.IPv4,
		rules.MixMark{Conntrack: true, ConntrackMark: 0xff, Xor: 1},
		"CONNMARK 1 0100000000ffffff",
	},
	{
		rules.IPv4,
		rules.MixMark{Conntrack: true, ConntrackMark: 0xff, Mark: 15},
		"CONNMARK 1 0000000000ffffff0f00000001",
	},
	{
		rules.IPv4,
		rules.MixMark{Mark: 0xff, ConntrackMark: 15},
		"CONNMARK 1 000000000f00000000ffffff02",
	},
	{rules.IPv4, rules.SaveMark{}, "CONNMARK 1 00000000ffffffffffffffff01"},
	{rules.IPv4, rules.RestoreMark{}, "CONNMARK 1 00000000ffffffffffffffff02"},
	{
		rules.IPv4,
		rules.RedirectTo{Port: 15001},
		"REDIRECT 0 010000000200000000000000000000003a993a99",
	},
	{rules.IPv6, rules.RedirectTo{Port: 15001}, "REDIRECT 0 02000000" + strings.Repeat("00", 32) +
		"3a993a99"},
	{rules.IPv4, rules.DNATPort{Port: 80}, "DNAT 0 0100000002000000000000000000000000500050"},
	{rules.IPv6, rules.DNATPort{Port: 80}, "DNAT 1 02000000" + strings.Repeat("00", 32) +
		"00500050"},
	{rules.IPv4, rules.RedirectTo{}, "REDIRECT 0 01"},
	{rules.IPv6, rules.RedirectTo{Port: 1, Last: 2}, "REDIRECT 0 02000000" +
		strings.Repeat("00", 32) + "00010002"},
	{
		rules.IPv4,
		rules.DNATPort{Port: 80, Last: 90},
		"DNAT 0 010000000200000000000000000000000050005a",
	},
	{
		rules.IPv4,
		rules.DNATTo{Addr: addr("10.0.0.1"), LastAddr: addr("10.0.0.9"), Port: 80, Last: 90},
		"DNAT 0 01000000030000000a0000010a0000090050005a",
	},
	{
		rules.IPv6,
		rules.DNATTo{Addr: addr("fd00::1")},
		"DNAT 1 01000000" + strings.Repeat("fd"+strings.Repeat("00", 14)+"01", 2),
	},
	{
		rules.IPv4,
		rules.SNATTo{Addr: addr("169.254.7.127")},
		"SNAT 0 0100000001000000a9fe077fa9fe077f",
	},
	{
		rules.IPv6,
		rules.SNATTo{Addr: addr("fd00::1")},
		"SNAT 1 01000000" + strings.Repeat("fd"+strings.Repeat("00", 14)+"01", 2),
	},
	{rules.IPv4, rules.Reject{With: "icmp net-prohibited"}, "REJECT 0 05"},
	{rules.IPv6, rules.Reject{With: "tcp reset"}, "REJECT 0 06"},
	{rules.IPv4, rules.Notrack{}, "CT 0 01"},
	{
		rules.IPv4,
		rules.TProxyDrop{Port: 1, Addr: addr("127.0.0.1")},
		"TPROXY 1 00000000000000007f000001" + strings.Repeat("00", 12) + "0001",
	},
	{rules.IPv4, rules.TProxyDrop{Value: 3, Mask: 1}, "TPROXY 1 0100000003"},
	{
		rules.IPv6,
		rules.TProxyDrop{Port: 15006, Value: 0x539, Mask: allBits},
		"TPROXY 1 ffffffff39050000" + strings.Repeat("00", 16) + "3a9e",
	},
	{rules.IPv4, rules.SetZone{Zone: 2}, "CT 0 000002"},
}

// sizes contains the sizes of the kernel's structures.
var sizes = map[string]int{
	"tcp 0": 12, "multiport 1": 48, "owner 1": 20, "mark 1": 12, "connmark 1": 12,
	"conntrack 3": 164, "iprange 1": 68, "cgroup 2": 528,
	"MARK 2": 8, "CONNMARK 1": 16, "DNAT 0": 20, "DNAT 1": 40, "SNAT 0": 20, "SNAT 1": 40,
	"REJECT 0": 4, "TPROXY 1": 28, "CT 0": 40,
}

// formatExtension formats an extension as in the lists above.
func formatExtension(x xt.Extension) string {
	key := x.Name + " " + string('0'+rune(x.Revision))
	return strings.TrimRight(key+" "+hex.EncodeToString([]byte(strings.TrimRight(string(x.Data),
		"\x00"))), " ")
}

func TestEncodeMatches(t *testing.T) {
	for _, tc := range encodable {
		list, err := xt.EncodeMatches(rules.TCP, []rules.Match{tc.match})
		if err != nil || len(list) != 1 {
			t.Errorf("%s: encoded as %v, error %v, want one extension", tc.match, list, err)
			continue
		}
		x := list[0]
		if size := sizes[x.Name+" "+string('0'+rune(x.Revision))]; formatExtension(x) != tc.want ||
			len(x.Data) != size {
			t.Errorf("%s: got %s with %d bytes, want %s with %d", tc.match, formatExtension(x), len(x.Data),
				tc.want, size)
		}
	}
}

func TestEncodePortsOfUDP(t *testing.T) {
	list, err := xt.EncodeMatches(rules.UDP, []rules.Match{
		rules.MatchPort{Side: rules.Source, Ports: rules.Singles[uint16](53)},
		rules.MatchPort{Side: rules.Destination, Not: true, Ports: rules.Singles[uint16](1)},
	})
	const want = "udp 0 350035000100010002"
	if err != nil || len(list) != 1 || formatExtension(list[0]) != want || len(list[0].Data) != 10 {
		t.Errorf("got %v, error %v, want %s with 10 bytes", list, err, want)
	}
}

func TestEncodeTarget(t *testing.T) {
	for _, tc := range targets {
		x, err := xt.EncodeTarget(tc.family, tc.action)
		size := sizes[x.Name+" "+string('0'+rune(x.Revision))]
		if x.Name == "REDIRECT" {
			size = map[rules.Family]int{rules.IPv4: 20, rules.IPv6: 40}[tc.family]
		}
		if err != nil || formatExtension(x) != tc.want || len(x.Data) != size {
			t.Errorf("%s: got %s with %d bytes, error %v, want %s with %d", tc.action, formatExtension(x),
				len(x.Data), err, tc.want, size)
		}
		if got := xt.DecodeTarget(tc.family, x); got != tc.action {
			t.Errorf("%s is encoded as %v and decoded as %s", tc.action, x, got)
		}
	}
}

func TestNewerRevisionsDecodeToTheSameAction(t *testing.T) {
	revisions := map[string][]uint32{
		"CONNMARK 1": {2}, "CT 0": {2, 1}, "DNAT 0": {2, 1}, "DNAT 1": {2}, "SNAT 0": {2, 1}, "SNAT 1": {2},
	}
	newerSizes := map[string]int{
		"CONNMARK 2": 16, "CT 1": 72, "CT 2": 72, "DNAT 1": 40, "DNAT 2": 44, "SNAT 1": 40, "SNAT 2": 44,
	}
	for _, tc := range targets {
		x := must(xt.EncodeTarget(tc.family, tc.action))
		var got []uint32
		for _, newer := range xt.Newer(x) {
			got = append(got, newer.Revision)
			size := newerSizes[newer.Name+" "+string('0'+rune(newer.Revision))]
			if a := xt.DecodeTarget(tc.family, newer); a != tc.action || len(newer.Data) != size {
				t.Errorf("%s in revision %d: decoded as %s from %d bytes, want the same action from %d",
					tc.action, newer.Revision, a, len(newer.Data), size)
			}
		}
		if want := revisions[x.Name+" "+string('0'+rune(x.Revision))]; !slices.Equal(want, got) {
			t.Errorf("%s: revisions %d, want %d", tc.action, got, want)
		}
	}
}

// samples returns all encoded extensions of the lists above.
func samples() []xt.Extension {
	var list []xt.Extension
	for _, tc := range encodable {
		list = append(list, must(xt.EncodeMatches(rules.TCP, []rules.Match{tc.match}))...)
	}
	for _, tc := range targets {
		list = append(list, must(xt.EncodeTarget(tc.family, tc.action)))
	}
	return append(list, must(xt.EncodeComment("text")))
}

func TestEncodeRejectsUnsupportedMatchesAndTargets(t *testing.T) {
	port := rules.MatchPort{Ports: rules.Singles[uint16](80)}
	flags := rules.MatchTCPFlags{Mask: rules.SYN}
	many := rules.MatchPort{Ports: rules.Singles[uint16](1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23,
		25, 27, 29, 31)}
	for _, tc := range []struct {
		name     string
		protocol rules.Protocol
		matches  []rules.Match
		want     string
	}{
		{
			"ports of any protocol", 0,
			[]rules.Match{port},
			"th sport 80: a match of ports needs a match of the protocol, TCP or UDP",
		},
		{
			"flags of UDP", rules.UDP,
			[]rules.Match{flags},
			"a match of TCP flags needs a match of the protocol TCP and at least one flag",
		},
		{"no flags", rules.TCP, []rules.Match{rules.MatchTCPFlags{}}, "at least one flag"},
		{
			"a flag of ECN", rules.TCP,
			[]rules.Match{rules.MatchTCPFlags{Mask: 1 << 6, Value: 1 << 6}},
			"supports only the flags FIN, SYN, RST, PSH, ACK and URG",
		},
		{
			"flags twice", rules.TCP,
			[]rules.Match{flags, flags},
			"a rule can match TCP flags only once",
		},
		{
			"many ports", rules.TCP,
			[]rules.Match{many},
			"a multiport match must have 1 to 15 ports; a range counts as two",
		},
		{
			"no ports", rules.TCP,
			[]rules.Match{rules.MatchPort{}},
			"a multiport match must have 1 to 15 ports",
		},
		{
			"several owners", 0,
			[]rules.Match{rules.MatchOwner{IDs: rules.Singles[uint32](1, 2)}},
			"an owner match must have exactly one range of ids",
		},
		{
			"an owner of packets without a socket, not negated", 0,
			[]rules.Match{rules.MatchOwner{Socketless: true, IDs: rules.Singles[uint32](1)}},
			"not negated matches no packet without a socket",
		},
		{
			"the invalid id", 0,
			[]rules.Match{rules.MatchOwner{IDs: rules.Singles[uint32](allBits)}},
			"the invalid id 4294967295",
		},
		{
			"no user, of packets with a socket", 0,
			[]rules.Match{rules.MatchOwner{Not: true, IDs: []rules.IDRange{{Last: allBits}}}},
			"the invalid id 4294967295",
		},
		{
			"no range of addresses", 0,
			[]rules.Match{rules.MatchAddr{}},
			"an iprange match must have exactly one range of addresses",
		},
		{
			"a family", 0,
			[]rules.Match{rules.MatchFamily{Family: rules.IPv4}},
			"meta nfproto ipv4: xtables has no such match",
		},
		{
			"a match that can only be decoded", 0,
			[]rules.Match{rules.MatchSocket{}},
			"encoding it for xtables is not supported",
		},
		{"a range of marks", 0, []rules.Match{rules.MatchMarkRange{}}, "xtables has no such match"},
		{
			"an unknown match", 0,
			[]rules.Match{rules.Unknown{Text: "x"}},
			"unknown(x): xtables has no such match",
		},
	} {
		if _, err := xt.EncodeMatches(tc.protocol, tc.matches); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.want)
		}
	}
	for _, action := range []rules.Action{
		rules.TProxy{Port: 1},
		rules.Count{},
		rules.RedirectTo{Last: 5},
		rules.RedirectTo{Port: 6, Last: 5},
		rules.DNATPort{},
		rules.DNATPort{Port: 6, Last: 5},
		rules.DNATTo{},
		rules.DNATTo{Port: 6},
		rules.DNATTo{Addr: addr("fd00::1")},
		rules.DNATTo{Addr: addr("10.0.0.2"), LastAddr: addr("10.0.0.1")},
		rules.DNATTo{Addr: addr("10.0.0.2"), LastAddr: addr("fd00::1")},
		rules.MixMark{Mark: 1, Xor: 1},
		rules.MixMark{Conntrack: true, Mark: 1, Xor: 1},
		rules.TProxyDrop{Port: 1, Addr: addr("::1")},
		rules.TProxyDrop{Port: 1, Addr: addr("0.0.0.0")},
		rules.Reject{With: "icmpv6 no-route"},
		rules.Reject{With: "icmpx port-unreachable"},
		rules.Require{Match: tcp},
		rules.Unknown{Text: "x"},
	} {
		if x, err := xt.EncodeTarget(rules.IPv4, action); err == nil {
			t.Errorf("%s is encoded as %v, want an error", action, x)
		}
	}
	helper := rules.SetZone{Helper: "ftp"}
	if _, err := xt.EncodeTarget(rules.IPv4, helper); err == nil ||
		!strings.Contains(err.Error(), helper.String()+": encoding it for xtables is not supported") {
		t.Errorf("%s: error %v, want the action and the reason", helper, err)
	}
	for _, text := range []string{"a\x00b", strings.Repeat("x", 256)} {
		if x, err := xt.EncodeComment(text); err == nil {
			t.Errorf("comment %q is encoded as %v, want an error", text, x)
		}
	}
}

// TestEncodedMatchesDecodeToTheSameMatches checks that any list of matches of a rule for TCP is
// equal, except for the order, after encoding and decoding.
func TestEncodedMatchesDecodeToTheSameMatches(t *testing.T) {
	ports := []rules.PortRange{
		{First: 0, Last: 0}, {First: 53, Last: 53}, {First: 80, Last: 90}, {First: 0, Last: 65535},
	}
	someMatch := rapid.Custom(func(t *rapid.T) rules.Match {
		if rapid.Bool().Draw(t, "ports") {
			list := rapid.SliceOfN(rapid.SampledFrom(ports), 1, 3).Draw(t, "list")
			return rules.MatchPort{
				Side: rules.Side(rapid.IntRange(0, 1).Draw(t, "side")),
				Not:  rapid.Bool().Draw(t, "not"), Ports: rules.Normalize(list),
			}
		}
		return rapid.SampledFrom(encodable).Draw(t, "match").match
	})
	rapid.Check(t, func(t *rapid.T) {
		matches := rapid.SliceOfN(someMatch, 0, 6).Draw(t, "matches")
		seen := false // a rule can match TCP flags only once
		matches = slices.DeleteFunc(matches, func(m rules.Match) bool {
			_, flags := m.(rules.MatchTCPFlags)
			twice := flags && seen
			seen = seen || flags
			return twice
		})
		rules.SortMatches(matches)
		list, err := xt.EncodeMatches(rules.TCP, matches)
		if err != nil {
			t.Fatal(err)
		}
		r := rules.Rule{Matches: []rules.Match{tcp}}
		for _, x := range list {
			decodeMatch(&r, rules.IPv4, x)
		}
		rules.SortMatches(r.Matches[1:])
		if diff := cmp.Diff(append([]rules.Match{}, matches...), r.Matches[1:],
			compareOptions()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestEncodeAddrRangeOfIPv6(t *testing.T) {
	want := rules.MatchAddr{Ranges: []netipx.IPRange{
		netipx.IPRangeFrom(netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::3")),
	}}
	list := must(xt.EncodeMatches(0, []rules.Match{want}))
	var r rules.Rule
	decodeMatch(&r, rules.IPv6, list[0])
	if diff := cmp.Diff([]rules.Match{want}, r.Matches, compareOptions()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// The structure does not contain the family of the addresses.
	r = rules.Rule{}
	decodeMatch(&r, rules.Inet, list[0])
	if _, unknown := r.Matches[0].(rules.Unknown); !unknown {
		t.Errorf("decoded as %v for both families, want an unknown match", r.Matches)
	}
}
