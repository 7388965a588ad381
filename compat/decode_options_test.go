package compat_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// An optionCase is a rule with an iptables option and its representation in the model.
type optionCase struct {
	table string
	rule  string // {8} and {6} stand for the addresses of the family that end in 8 and 6
	// matches lists the matches, without the match of -p.
	matches []rules.Match
	// actions lists the actions without the counter.
	actions []rules.Action
	only    rules.Family // the only family with the option; rules.Inet for both
	// notNFT excludes iptables-nft, which writes nf_tables expressions instead of the xtables
	// structure.
	notNFT bool
}

// optionCases returns cases with options of matches and targets that the model represents, and with
// options that decode to rules.Unknown. A match that may have a side effect decodes to an action.
func optionCases(f rules.Family) []optionCase {
	addr := func(last byte) netip.Addr {
		if f == rules.IPv4 {
			return netip.AddrFrom4([4]byte{10, 0, 0, last})
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 15: last})
	}
	list := func(m ...rules.Match) []rules.Match { return m }
	does := func(a ...rules.Action) []rules.Action { return a }
	state := func(not bool, states ...rules.State) []rules.Match {
		return list(rules.MatchState{Not: not, States: rules.States(states...)})
	}
	status := func(not bool, s rules.Status) []rules.Match {
		return list(rules.MatchStatus{Not: not, Status: s})
	}
	port := func(side rules.Side, not bool, ranges string) rules.MatchPort {
		return rules.MatchPort{Side: side, Not: not, Ports: portRanges(ranges)}
	}
	either := func(not bool, ranges string) rules.Match {
		return rules.MatchTuple{Not: not, Alternatives: [][]rules.Match{
			{port(rules.Source, false, ranges)}, {port(rules.Destination, false, ranges)},
		}}
	}
	icmp := func(not bool, first, last uint16) []rules.Match {
		return list(rules.MatchICMP{
			V6: f == rules.IPv6, Not: not,
			Values: []rules.Range[uint16]{{First: first, Last: last}},
		})
	}
	reads := func(text string) []rules.Match {
		return list(rules.Unknown{Text: text, Effect: rules.Reads})
	}
	readsVarying := func(text string) []rules.Match {
		return list(rules.Unknown{Text: text, Effect: rules.ReadsVarying})
	}
	readsHistory := func(text, state string) []rules.Match {
		return list(rules.Unknown{Text: text, Effect: rules.ReadsHistory, State: state})
	}
	doesUnknown := func(text string) []rules.Action { return does(rules.Unknown{Text: text}) }
	writes := func(effect rules.Effect, text, state string) []rules.Action {
		return does(rules.Unknown{Text: text, Effect: effect, State: state})
	}
	types := rules.AddrTypes
	const all = ^uint32(0)
	v4, v6 := rules.IPv4, rules.IPv6
	mask, bits, addressAndPorts := "255.255.255.255", 32, "10.0.0.8:80-90"
	if f == v6 {
		mask, bits = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 128
		addressAndPorts = "[fd00::8]:80-90"
	}
	recent := func(condition string) string {
		return fmt.Sprintf("-m recent %s --name x --mask %s --rsource", condition, mask)
	}
	return []optionCase{
		{table: "mangle", rule: "-m addrtype --dst-type LOCAL", matches: list(
			rules.MatchAddrType{Side: rules.Destination, Types: types(rules.Local)})},
		{
			table: "mangle", rule: "-m addrtype ! --src-type MULTICAST --dst-type ANYCAST,LOCAL",
			matches: list(
				rules.MatchAddrType{Not: true, Types: types(rules.Multicast)},
				rules.MatchAddrType{
					Side: rules.Destination, Types: types(rules.Anycast, rules.Local),
				}),
		},
		{table: "mangle", rule: "-m addrtype ! --dst-type LOCAL,BROADCAST", only: v4, matches: list(
			rules.MatchAddrType{
				Side: rules.Destination, Not: true, Types: types(rules.Local, rules.Broadcast),
			})},
		{table: "mangle", rule: "-m addrtype --dst-type UNICAST", only: v4, matches: list(
			rules.MatchAddrType{Side: rules.Destination, Types: types(rules.Unicast)})},
		{
			table: "mangle", rule: "-m addrtype --dst-type UNICAST",
			only:    v6,
			matches: reads("-m addrtype --dst-type UNICAST"),
		},
		{
			table: "mangle", rule: "-m addrtype --dst-type LOCAL,UNICAST",
			only:    v6,
			matches: reads("-m addrtype --dst-type UNICAST,LOCAL"),
		},
		{
			table: "mangle", rule: "-m addrtype --dst-type UNREACHABLE",
			only:    v6,
			matches: reads("-m addrtype --dst-type UNREACHABLE"),
		},
		{
			table: "mangle", rule: "-m addrtype --dst-type LOCAL --limit-iface-in",
			matches: reads("-m addrtype --dst-type LOCAL --limit-iface-in"),
		},

		{table: "mangle", rule: "-m conntrack --ctstate SNAT", matches: state(false, rules.SNAT)},
		{
			table: "mangle", rule: "-m conntrack ! --ctstate NEW,DNAT,UNTRACKED",
			matches: state(true, rules.New, rules.DNAT, rules.Untracked),
		},
		{
			table: "mangle", rule: "-m state --state INVALID,ESTABLISHED",
			matches: state(false, rules.Invalid, rules.Established),
		},
		{
			table: "mangle", rule: "-m conntrack --ctstatus ASSURED,EXPECTED",
			matches: status(false, rules.StatusAssured|rules.StatusExpected),
		},
		{
			table: "mangle", rule: "-m conntrack ! --ctstatus SEEN_REPLY,CONFIRMED",
			matches: status(true, rules.StatusSeenReply|rules.StatusConfirmed),
		},
		{
			table: "mangle", rule: "-m conntrack --ctdir ORIGINAL",
			matches: list(rules.MatchDirection{}),
		},
		{
			table: "mangle", rule: "-m conntrack --ctdir REPLY",
			matches: list(rules.MatchDirection{Reply: true}),
		},
		{
			table: "mangle", rule: "-m conntrack --ctstate NEW --ctdir REPLY",
			matches: reads("-m conntrack --ctstate NEW --ctdir REPLY"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctstate NEW --ctstatus ASSURED",
			matches: reads("-m conntrack --ctstate NEW --ctstatus ASSURED"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctorigdst {8}", only: v4,
			matches: reads("-m conntrack --ctorigdst 10.0.0.8"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctorigdst {8}/64", only: v6,
			matches: reads("-m conntrack --ctorigdst fd00::/64"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctreplsrc {8}", only: v4,
			matches: reads("-m conntrack --ctreplsrc 10.0.0.8"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctreplsrc {8}/64", only: v6,
			matches: reads("-m conntrack --ctreplsrc fd00::/64"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctorigdstport 80",
			matches: reads("-m conntrack --ctorigdstport 80"),
		},
		{
			table: "mangle", rule: "-m conntrack --ctexpire 1:10",
			matches: reads("-m conntrack --ctexpire 1:10"),
		},

		{
			table: "mangle", rule: "-p tcp -m multiport --ports 80,443:445",
			matches: list(either(false, "80,443-445")),
		},
		{
			table: "mangle", rule: "-p udp -m multiport ! --ports 53",
			matches: list(either(true, "53")),
		},
		{
			table: "mangle", rule: "-p tcp -m multiport --dports 80,82:84",
			matches: list(port(rules.Destination, false, "80,82-84")),
		},
		{
			table: "mangle", rule: "-p sctp -m multiport --ports 80",
			matches: list(rules.MatchTuple{Alternatives: [][]rules.Match{
				list(port(rules.Source, false, "80")), list(port(rules.Destination, false, "80")),
			}}),
		},

		{
			table: "mangle", rule: "-m mark --mark 0x1/0xff",
			matches: list(rules.MatchMark{Value: 1, Mask: 0xff}),
		},
		{table: "mangle", rule: "-m connmark ! --mark 0x1/0xff", matches: list(
			rules.MatchMark{Conntrack: true, Not: true, Value: 1, Mask: 0xff})},

		{
			table: "mangle", rule: "-p icmp -m icmp --icmp-type echo-request",
			only:    v4,
			matches: icmp(false, 0x800, 0x8ff),
		},
		{
			table: "mangle", rule: "-p icmp -m icmp ! --icmp-type fragmentation-needed",
			only:    v4,
			matches: icmp(true, 0x304, 0x304),
		},
		{table: "mangle", rule: "-p icmp -m icmp --icmp-type any", only: v4},
		{
			table: "mangle", rule: "-p ipv6-icmp -m icmp6 --icmpv6-type echo-request",
			only:    v6,
			matches: icmp(false, 0x8000, 0x80ff),
		},
		{
			table: "mangle", rule: "-p ipv6-icmp -m icmp6 ! --icmpv6-type 1/4",
			only:    v6,
			matches: icmp(true, 0x104, 0x104),
		},
		{
			table: "mangle", rule: "-p ipv6-icmp -m icmp6 --icmpv6-type 255",
			only:    v6,
			matches: icmp(false, 0xff00, 0xffff),
		},

		{table: "mangle", rule: "-m socket --transparent", matches: list(rules.MatchSocket{})},
		{
			table: "mangle", rule: "-m socket --transparent --nowildcard",
			matches: list(rules.MatchSocket{Kind: "nowildcard"}),
		},
		{table: "mangle", rule: "-m socket", matches: reads("-m socket")},
		{
			table: "mangle", rule: "-m socket --nowildcard",
			matches: reads("-m socket --nowildcard"),
		},
		{table: "raw", rule: "-m rpfilter", matches: list(rules.MatchReversePath{})},
		{
			table: "raw", rule: "-m rpfilter --validmark --invert",
			matches: list(rules.MatchReversePath{Not: true, Kind: "validmark"}),
		},
		{
			table: "raw", rule: "-m rpfilter --accept-local --loose",
			matches: list(rules.MatchReversePath{Kind: "loose accept-local"}),
		},

		{
			table: "mangle", rule: "-m statistic --mode random --probability 0.5",
			matches: readsVarying("-m statistic --mode random --probability 0.50000000000"),
		},
		{
			table: "mangle", rule: "-m limit --limit 5/sec",
			notNFT:  true,
			matches: readsVarying("-m limit --limit 5/sec --limit-burst 5"),
		},
		{
			table: "mangle", rule: "-m recent --name x --set",
			actions: writes(rules.Writes, recent("--set"), "recent x"),
		},
		{
			table: "mangle", rule: "-m recent --name x --update",
			actions: writes(rules.ReadsAndWrites, recent("--update"), "recent x"),
		},
		{
			table: "mangle", rule: "-m recent --name x --rcheck",
			matches: readsHistory(recent("--rcheck"), "recent x"),
		},
		{table: "mangle", rule: "-m quota --quota 1000", matches: readsHistory("-m quota --quota 1000", "")},
		{
			table: "mangle", rule: "-m hashlimit --hashlimit-upto 5/sec --hashlimit-name x",
			actions: writes(rules.ReadsAndWrites, fmt.Sprintf("-m hashlimit --hashlimit-name x "+
				"--hashlimit-upto 1/200000us --hashlimit-burst 5 --hashlimit-htable-gcinterval 1000 "+
				"--hashlimit-htable-expire 1000 --hashlimit-srcmask %d --hashlimit-dstmask %d", bits,
				bits), "hashlimit x"),
		},
		{
			table: "mangle", rule: "-m connlimit --connlimit-above 3",
			actions: doesUnknown(fmt.Sprintf(
				"-m connlimit --connlimit-above 3 --connlimit-mask %d --connlimit-saddr", bits)),
		},
		{
			table: "mangle", rule: `-m bpf --bytecode "4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0"`,
			matches: reads("match bpf revision 1"),
		},
		{
			table:   "mangle",
			rule:    "-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 1",
			actions: doesUnknown("match cluster revision 0"),
		},
		{
			table: "mangle", rule: "-m length --length 100",
			matches: reads("-m length --length 100"),
		},
		{
			table: "mangle", rule: "-m connlabel --label 1",
			matches: list(rules.Unknown{
				Text: "match connlabel revision 0", Effect: rules.Reads, State: "ct label",
			}),
		},
		{
			table: "mangle", rule: "-s 10.0.0.1/255.0.0.255",
			only: v4, notNFT: true,
			matches: reads("source address 10.0.0.1, mask 255.0.0.255"),
		},
		{
			table: "mangle", rule: "! -d 10.0.0.1/255.0.0.255",
			only: v4, notNFT: true,
			matches: reads("not destination address 10.0.0.1, mask 255.0.0.255"),
		},
		{
			table: "mangle", rule: "! -d fd00::1/ff00::ff",
			only: v6, notNFT: true,
			matches: reads("not destination address fd00::1, mask ff00::ff"),
		},
		{
			table: "mangle", rule: "-f", only: v4, notNFT: true,
			matches: reads("-f"),
		},
		{
			table: "mangle", rule: "! -f",
			only: v4, notNFT: true,
			matches: reads("! -f"),
		},

		// --restore-skmark sets the mark even if a later match fails.
		{
			table:   "mangle",
			rule:    "-i lo -m socket --restore-skmark -m length --length 100 -m socket --transparent -j DROP",
			matches: list(rules.MatchInterface{Names: interfaceNames("lo")}),
			actions: does(
				rules.Unknown{Text: "-m socket --restore-skmark"},
				rules.Require{Match: rules.Unknown{
					Text: "-m length --length 100", Effect: rules.Reads,
				}},
				rules.Require{Match: rules.MatchSocket{}}, rules.Drop,
			),
		},
		{
			table:   "mangle",
			rule:    "-m length --length 100 -m socket --transparent --restore-skmark",
			matches: reads("-m length --length 100"),
			actions: does(rules.Unknown{Text: "-m socket --transparent --restore-skmark"}),
		},

		{
			table: "mangle", rule: "-j MARK --set-xmark 0x3/0x1",
			actions: does(rules.SetMark{Value: 3, Mask: 1}),
		},
		{
			table: "mangle", rule: "-j MARK --xor-mark 0x10",
			actions: does(rules.SetMark{Value: 0x10}),
		},
		{
			table: "mangle", rule: "-j MARK --and-mark 0x10",
			actions: does(rules.SetMark{Mask: all &^ 0x10}),
		},
		{
			table: "mangle", rule: "-j MARK --or-mark 0x10",
			actions: does(rules.SetMark{Value: 0x10, Mask: 0x10}),
		},
		{table: "mangle", rule: "-j CONNMARK --save-mark", actions: does(rules.SaveMark{})},
		{table: "mangle", rule: "-j CONNMARK --restore-mark", actions: does(rules.RestoreMark{})},
		{
			table: "mangle", rule: "-j CONNMARK --set-mark 5",
			actions: does(rules.MixMark{Conntrack: true, Xor: 5}),
		},
		{table: "mangle", rule: "-j CONNMARK --set-xmark 0x3/0x1", actions: does(
			rules.MixMark{Conntrack: true, ConntrackMark: all &^ 1, Xor: 3})},
		{table: "mangle", rule: "-j CONNMARK --or-mark 0x10", actions: does(
			rules.MixMark{Conntrack: true, ConntrackMark: all &^ 0x10, Xor: 0x10})},
		{
			table: "mangle", rule: "-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff00",
			actions: does(
				rules.MixMark{Conntrack: true, ConntrackMark: all &^ 0xff00, Mark: 0xff}),
		},
		{
			table: "mangle", rule: "-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff00",
			actions: does(
				rules.MixMark{Mark: all &^ 0xff, ConntrackMark: 0xff00}),
		},
		{table: "mangle", rule: "-j CONNMARK --save-mark --left-shift-mark 4", actions: does(
			rules.Unknown{Text: "target CONNMARK revision 2", Effect: rules.WritesConntrackMark})},
		{table: "mangle", rule: "-j CONNMARK --restore-mark --right-shift-mark 4", actions: does(
			rules.Unknown{Text: "target CONNMARK revision 2", Effect: rules.WritesMark})},

		{table: "raw", rule: "-j CT --notrack", actions: does(rules.Notrack{})},
		{table: "raw", rule: "-j NOTRACK", actions: does(rules.Notrack{})},
		{table: "raw", rule: "-j CT --zone 7", actions: does(rules.SetZone{Zone: 7})},
		{table: "raw", rule: "-j CT --zone-orig 7", actions: doesUnknown("-j CT --zone-orig 7")},
		{table: "raw", rule: "-j CT --zone-reply mark", actions: doesUnknown("-j CT --zone-reply mark")},
		{
			table: "raw", rule: "-j CT --ctevents new,destroy",
			actions: doesUnknown("-j CT --ctevents 0x5"),
		},

		{table: "nat", rule: "-p tcp -j REDIRECT", actions: does(rules.RedirectTo{})},
		{
			table: "nat", rule: "-p tcp -j REDIRECT --to-ports 80",
			actions: does(rules.RedirectTo{Port: 80}),
		},
		{
			table: "nat", rule: "-p tcp -j REDIRECT --to-ports 80-90",
			actions: does(rules.RedirectTo{Port: 80, Last: 90}),
		},
		{
			table: "nat", rule: "-p tcp -j REDIRECT --to-ports 80 --random",
			actions: does(rules.RedirectTo{Port: 80}),
		},
		{
			table: "nat", rule: "-p tcp -j REDIRECT --to-ports 80-90 --random",
			actions: doesUnknown("redirect to :80-90 random"),
		},
		{
			table: "nat", rule: "-j DNAT --to-destination {8}",
			actions: does(rules.DNATTo{Addr: addr(8)}),
		},
		{
			table: "nat", rule: "-j DNAT --to-destination {6}-{8}",
			actions: does(rules.DNATTo{Addr: addr(6), LastAddr: addr(8)}),
		},
		{
			table: "nat", rule: "-j DNAT --to-destination {8} --persistent",
			actions: does(rules.DNATTo{Addr: addr(8)}),
		},
		{
			table: "nat", rule: "-j DNAT --to-destination {6}-{8} --persistent",
			actions: doesUnknown(fmt.Sprintf("dnat to %s-%s persistent", addr(6), addr(8))),
		},
		{
			table: "nat", rule: "-p tcp -j DNAT --to-destination [{8}]:80",
			actions: does(rules.DNATTo{Addr: addr(8), Port: 80}),
		},
		{table: "nat", rule: "-p tcp -j DNAT --to-destination [{6}-{8}]:80-90", actions: does(
			rules.DNATTo{Addr: addr(6), LastAddr: addr(8), Port: 80, Last: 90})},
		{
			table: "nat", rule: "-p tcp -j DNAT --to-destination :80-90",
			actions: does(rules.DNATPort{Port: 80, Last: 90}),
		},
		{
			table: "nat", rule: "-p tcp -j DNAT --to-destination [{8}]:80-90/100",
			actions: doesUnknown("target DNAT revision 2"),
		},
		{
			table: "nat", rule: "-p tcp -j DNAT --to-destination [{8}]:80-90 --random",
			actions: doesUnknown("dnat to " + addressAndPorts + " random"),
		},

		{
			table: "filter", rule: "-j REJECT",
			only:    v4,
			actions: does(rules.Reject{With: "icmp port-unreachable"}),
		},
		{
			table: "filter", rule: "-j REJECT",
			only:    v6,
			actions: does(rules.Reject{With: "icmpv6 port-unreachable"}),
		},
		{
			table: "filter", rule: "-p tcp -j REJECT --reject-with tcp-reset",
			actions: does(rules.Reject{With: "tcp reset"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp-net-unreachable",
			only:    v4,
			actions: does(rules.Reject{With: "icmp net-unreachable"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp-host-unreachable",
			only:    v4,
			actions: does(rules.Reject{With: "icmp host-unreachable"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp-proto-unreachable",
			only:    v4,
			actions: does(rules.Reject{With: "icmp prot-unreachable"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp-net-prohibited",
			only:    v4,
			actions: does(rules.Reject{With: "icmp net-prohibited"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp-host-prohibited",
			only:    v4,
			actions: does(rules.Reject{With: "icmp host-prohibited"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp-admin-prohibited",
			only:    v4,
			actions: does(rules.Reject{With: "icmp admin-prohibited"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp6-no-route",
			only:    v6,
			actions: does(rules.Reject{With: "icmpv6 no-route"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp6-adm-prohibited",
			only:    v6,
			actions: does(rules.Reject{With: "icmpv6 admin-prohibited"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp6-addr-unreachable",
			only:    v6,
			actions: does(rules.Reject{With: "icmpv6 addr-unreachable"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp6-policy-fail",
			only:    v6,
			actions: does(rules.Reject{With: "icmpv6 policy-fail"}),
		},
		{
			table: "filter", rule: "-j REJECT --reject-with icmp6-reject-route",
			only:    v6,
			actions: does(rules.Reject{With: "icmpv6 reject-route"}),
		},

		{
			table: "mangle",
			rule:  "-p tcp -j TPROXY --on-port 15006 --on-ip {8} --tproxy-mark 0x3/0x1",
			actions: does(
				rules.TProxyDrop{Port: 15006, Addr: addr(8), Value: 3, Mask: 1}),
		},
		{table: "mangle", rule: "-p udp -j TPROXY --on-port 0", actions: does(rules.TProxyDrop{})},

		{
			table: "mangle", rule: "-j NFLOG --nflog-group 3",
			actions: does(rules.NoEffect{Text: "log group 3"}),
		},
		{
			table: "mangle", rule: "-j LOG",
			actions: does(rules.NoEffect{Text: "log"}),
		},
		{
			table: "raw", rule: "-j TRACE", notNFT: true,
			actions: does(rules.NoEffect{Text: "meta nftrace set 1"}),
		},
		{
			table: "mangle", rule: "-j AUDIT --type accept",
			actions: does(rules.NoEffect{Text: "log level audit"}),
		},
		{
			table:   "mangle",
			rule:    "-j RATEEST --rateest-name x --rateest-interval 250ms --rateest-ewmalog 0.5s",
			actions: writes(rules.Writes, "target RATEEST revision 0", "rateest"),
		},
		{
			table: "mangle", rule: "-j IDLETIMER --timeout 10 --label x",
			actions: does(rules.NoEffect{Text: "unknown(-j IDLETIMER)"}),
		},
		{table: "mangle", rule: "-j DSCP --set-dscp 1", actions: does(xt.DSCP(1))},
		{table: "mangle", rule: "-j TOS --set-tos 4", actions: does(xt.TOS(4, 0xff))},
		{table: "mangle", rule: "-j TOS --or-tos 4", actions: does(xt.TOS(4, 4))},
		{table: "mangle", rule: "-j TOS --and-tos 4", actions: does(xt.TOS(0, 0xfb))},
		{table: "mangle", rule: "-j TOS --xor-tos 4", actions: does(xt.TOS(4, 0))},
		{table: "mangle", rule: "-j CHECKSUM --checksum-fill", actions: does(xt.FillChecksum())},
		{
			table: "mangle", rule: "-p tcp --syn -j TCPMSS --set-mss 500",
			matches: list(rules.MatchTCPFlags{
				Mask: rules.SYN | rules.RST | rules.ACK | rules.FIN, Value: rules.SYN,
			}),
			actions: does(xt.TCPMSS(500)),
		},
		{table: "mangle", rule: "-j TEE --gateway {8}", actions: doesUnknown("-j TEE --gateway " + addr(8).String())},
		{
			table: "mangle", rule: "-j CLASSIFY --set-class 1:1",
			actions: does(xt.Classify(1<<16 | 1)),
		},
		{table: "nat", rule: "-j NETMAP --to {8}", actions: doesUnknown(fmt.Sprintf("-j NETMAP --to %s/%d", addr(8), bits))},
		{
			table: "mangle", rule: "-j NFQUEUE --queue-num 1",
			actions: doesUnknown("-j NFQUEUE --queue-num 1"),
		},
	}
}

// withAddresses returns the rule with addresses of the family for {8} and {6}, and without the
// brackets for IPv4.
func (c optionCase) withAddresses(f rules.Family) string {
	if f == rules.IPv4 {
		return strings.NewReplacer("[", "", "]", "", "{8}", "10.0.0.8", "{6}",
			"10.0.0.6").Replace(c.rule)
	}
	return strings.NewReplacer("{8}", "fd00::8", "{6}", "fd00::6").Replace(c.rule)
}

// tableReaders returns functions that read the tables of each iptables variant.
func tableReaders() map[istiotest.Variant]func(*netns.NS) []rules.Table {
	return map[istiotest.Variant]func(*netns.NS) []rules.Table{
		istiotest.Legacy: func(ns *netns.NS) []rules.Table { return must(compat.ReadTables(ns)) },
		istiotest.NFT:    func(ns *netns.NS) []rules.Table { return must(nft.ReadAll(ns)).Tables },
	}
}

// TestDecodeOptions loads rules with the iptables programs, decodes the tables of the kernel, and
// compares the rules with their expected representation.
func TestDecodeOptions(t *testing.T) {
	for variant, read := range tableReaders() {
		name := map[istiotest.Variant]string{
			istiotest.Legacy: "legacy", istiotest.NFT: "nft",
		}[variant]
		for _, f := range istiotest.Families {
			ns := netnstest.New(t)
			list := slices.DeleteFunc(optionCases(f), func(c optionCase) bool {
				return c.only != rules.Inet && c.only != f || c.notNFT && variant == istiotest.NFT
			})
			istiotest.Restore(t, ns, variant, f, optionTables(f, list))
			tables := read(ns)
			for i, c := range list {
				t.Run(fmt.Sprintf("%s %s -t %s %s", name, f, c.table, c.rule), func(t *testing.T) {
					n := slices.IndexFunc(tables, func(table rules.Table) bool {
						return table.Family == f && table.Name == c.table
					})
					c.compare(t, tables[n].Chain(optionChain(i)).Rules[0])
				})
			}
		}
	}
}

// optionChain returns the name of the chain with the option at an index.
func optionChain(i int) string { return fmt.Sprint("OPTION", i) }

// optionTables returns tables with a chain for each option.
func optionTables(f rules.Family, list []optionCase) string {
	var b strings.Builder
	for _, table := range []string{"raw", "mangle", "nat", "filter"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for i, c := range list {
			if c.table == table {
				fmt.Fprintf(&b, ":%[1]s - [0:0]\n[0:0] -A %[1]s %[2]s\n", optionChain(i),
					c.withAddresses(f))
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// compare compares a decoded rule with its expected representation, but not the bytes of unknown
// matches and actions.
func (c optionCase) compare(t *testing.T, got rules.Rule) {
	t.Helper()
	isProtocol := func(m rules.Match) bool {
		_, ok := m.(rules.MatchProtocol)
		return ok
	}
	if protocol, _, ok := strings.Cut(strings.TrimPrefix(c.rule, "-p "), " "); ok &&
		strings.HasPrefix(c.rule, "-p ") {
		n := slices.IndexFunc(got.Matches, isProtocol)
		if n < 0 || got.Matches[n].String() != "meta l4proto "+protocol {
			t.Errorf("the matches %v do not contain the protocol %s", got.Matches, protocol)
		}
	}
	got.Matches = slices.DeleteFunc(got.Matches, isProtocol)
	got.Actions = slices.DeleteFunc(got.Actions, func(a rules.Action) bool {
		return a == rules.Action(rules.Count{})
	})
	opts := cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }),
		cmp.Comparer(func(a, b rules.Unknown) bool {
			return a.Text == b.Text && a.Effect == b.Effect && a.State == b.State
		}),
	}
	if diff := cmp.Diff(c.matches, got.Matches, opts); len(c.matches)+len(got.Matches) > 0 &&
		diff != "" {
		t.Errorf("matches, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(c.actions, got.Actions, opts); len(c.actions)+len(got.Actions) > 0 &&
		diff != "" {
		t.Errorf("actions, -want +got:\n%s", diff)
	}
}
