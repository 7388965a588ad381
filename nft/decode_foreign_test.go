package nft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// filterRules contains rules in nft's syntax, each with its decoded form (see formatRule): matches
// and, after "|", actions. A match after an action is in brackets. A question mark means that two
// such expressions are never equal. A rule with a map may be decoded as several rules.
var filterRules = [][]string{
	{"notrack tcp dport 80 accept", "| notrack [meta l4proto tcp] [th dport 80] accept"},
	{
		"meta mark set 7 tcp dport 80 accept",
		"| meta mark set 0x7 [meta l4proto tcp] [th dport 80] accept",
	},
	{
		"ct mark set 5 tcp dport 80 accept",
		"| ct mark set 0x5 [meta l4proto tcp] [th dport 80] accept",
	},
	{
		"tcp dport set 9090 ip saddr 1.2.3.4 accept",
		"meta l4proto tcp | anything(payload) [meta nfproto ipv4] [ip saddr 1.2.3.4] accept",
	},
	{
		"meta mark set tcp dport map { 8080 : 7 } tcp dport 80 accept",
		"meta l4proto tcp | writes mark(meta mark set th dport map { 1 elements }) [th dport 80] accept",
	},
	{
		"ip saddr 10.200.1.1 meta nfproto != ipv4 drop",
		"meta nfproto ipv6 ip saddr 10.200.1.1 | drop",
	},
	{"meta l4proto tcp meta l4proto udp accept", "meta l4proto tcp meta l4proto udp | accept"},
	{
		"meta l4proto { tcp, udp } meta l4proto udp th dport 53 accept",
		"meta l4proto { tcp, udp } meta l4proto udp th dport 53 | accept",
	},
	{"ip6 nexthdr tcp accept", "meta nfproto ipv6 reads(@nh,48,8 0x06) | accept"},
	{
		"ip dscp set 1 tcp dport 80 accept",
		"meta nfproto ipv4 | (ip tos set @nh,0,16 & 0xff03 ^ 0x0004) [meta l4proto tcp] [th dport 80] accept",
	},
	{"ip ecn set ce", "meta nfproto ipv4 | (ip tos set @nh,0,16 & 0xfffc ^ 0x0003)"},
	{"ip ttl set 7", "meta nfproto ipv4 | (ip ttl set @nh,64,16 & 0x00ff ^ 0x0700)"},
	{"ip6 dscp set 3", "meta nfproto ipv6 | (ip6 traffic class set @nh,0,16 & 0xf03f ^ 0x00c0)"},
	{"ip6 hoplimit set 5", "meta nfproto ipv6 | (ip6 hoplimit set @nh,56,8 & 0x00 ^ 0x05)"},
	{"ip6 flowlabel set 5", "meta nfproto ipv6 | anything(payload)"},
	{"ip length set 5", "meta nfproto ipv4 | anything(payload)"},
	{"ip protocol set 5", "meta nfproto ipv4 | anything(payload)"},
	{"@nh,0,8 set 0x45", "| anything(payload)"},
	{"@nh,8,8 set 0x45", "| anything(payload)"},
	{
		"tcp option maxseg size set 1400 accept",
		"meta l4proto tcp reads(the options of TCP are well-formed) | " +
			"(tcp option maxseg set 0x0578) accept",
	},
	{"tcp option timestamp tsval set 3 accept", "| anything(exthdr) accept"},
	{"meta priority set 1:2 accept", "| (meta priority set) accept"},
	{"meta nftrace set 1 accept", "| (meta nftrace set) accept"},
	{"ct label set 3 accept", "| (ct label set) accept"},
	{"meta pkttype set host accept", "| anything(meta) accept"},
	{"ct event set new accept", "| unknown(ct event) accept"},
	{"meta iiftype ether accept", "reads(meta iiftype 0x0100) | accept"},
	{"meta pkttype broadcast accept", "reads(meta pkttype 0x01) | accept"},
	{
		"meta length 100-200 accept",
		"reads(byteorder 3=00000001 4=00000004 5=00000004 of meta length 0x00000064-0x000000c8) | accept",
	},
	{"meta cgroup 5 accept", "reads(meta cgroup 0x05000000) | accept"},
	{
		"meta time > 5 accept",
		"reads(byteorder 3=00000001 4=00000008 5=00000008 of meta time 0x000000012a05f201-0xffffffffffffffff) | accept",
	},
	{"rt classid 5 accept", "reads(rt 2=00000000 0x05000000) | accept"},
	{`ct helper "ftp" accept`, "reads(ct helper 0x66747000000000000000000000000000) | accept"},
	{
		"meta l4proto tcp ct original ip saddr 1.2.3.4 accept",
		"meta l4proto tcp reads(ct original ip saddr 0x01020304) | accept",
	},
	{
		"meta l4proto tcp ct reply proto-dst 80 accept",
		"meta l4proto tcp reads(ct reply proto-dst 0x0050) | accept",
	},
	{"ct original zone set 5", "| anything(ct)"},
	{
		"ct zone set 7 tcp dport 80 accept",
		"| ct zone set 7 [meta l4proto tcp] [th dport 80] accept",
	},
	{
		"meta mark set numgen random mod 5 accept",
		"| writes mark(meta mark set numgen random mod 5) accept",
	},
	{
		"meta mark set jhash ip saddr mod 5 accept",
		"meta nfproto ipv4 | writes mark(meta mark set jhash ip saddr seed 0x0 mod 5 offset 0)? accept",
	},
	{
		"icmp type { 3, 8 } accept",
		"meta nfproto ipv4 meta l4proto icmp icmp type . code { 3 . *, 8 . * } | accept",
	},
	{
		"icmpv6 type != { 133, 134 } accept",
		"meta nfproto ipv6 meta l4proto ipv6-icmp icmpv6 type . code != 133 . 0-134 . 255 | accept",
	},
	{
		"fib daddr type != { local, multicast } accept",
		"fib daddr type != { local, multicast } | accept",
	},
	{"fib daddr . mark type local accept", "reads(fib 2=00000003 3=00000006 0x02000000) | accept"},
	{"socket transparent 0 accept", "reads(socket transparent 0x00) | accept"},
	{"socket mark 5 accept", "reads(socket mark 0x05000000) | accept"},
	{"socket wildcard 0 accept", "reads(socket wildcard 0x00) | accept"},
	{"meta mark set ct mark", "| meta mark set ct mark"},
	{"meta mark set meta mark << 4", "| writes mark(meta mark set meta mark << 4)"},
	{
		"ct mark set (meta mark & 0xff) >> 3 accept",
		"| writes ct mark(ct mark set meta mark & 0xff000000 >> 3) accept",
	},
	{"meta mark set meta mark and 0xff xor 0x1", "| meta mark set meta mark & 0xff ^ 0x1"},
	{"ct mark set ct mark or 0x8", "| ct mark set ct mark & 0xfffffff7 ^ 0x8"},
	{"ct mark set ct mark and 0x7", "| ct mark set ct mark & 0x7"},
	{"meta mark set ct mark and 0x0", "ct mark & 0x0 == 0x0 | meta mark set 0x0"},
	{
		"meta mark set 5 meta mark set ct mark and 0x0 xor 0x7 accept",
		"| meta mark set 0x5 [ct mark & 0x0 == 0x0] meta mark set 0x7 accept",
	},
	{
		"ct mark set ct mark and 0x7 accept",
		"| ct mark set ct mark & 0x7 [ct mark & 0x0 == 0x0] accept",
	},
	{
		"meta mark set 5 meta mark set 6 meta mark 6 ct mark set mark accept",
		"| meta mark set 0x5 meta mark set 0x6 [meta mark 0x6] ct mark set meta mark accept",
	},
	{
		"limit rate 5/second tcp dport { 80, 81 } accept",
		"meta l4proto tcp th dport { 80, 81 } reads varying(limit rate 5/second burst 5 packets) | accept",
	},
	{
		"ip daddr . tcp dport { 1.2.3.4 . 80, 1.2.3.4 . 81 } accept",
		"meta nfproto ipv4 { ip daddr 1.2.3.4 . th dport 80, ip daddr 1.2.3.4 . th dport 81 } meta l4proto tcp | accept",
	},
	{
		"ip daddr . tcp dport != { 1.2.3.4 . 80, 10.0.0.0/8 . 81-90 } accept",
		"meta nfproto ipv4 != { ip daddr 1.2.3.4 . th dport 80, ip daddr 10.0.0.0/8 . th dport 81-90 } meta l4proto tcp | accept",
	},
	{
		"meta mark . ip daddr { 1 . 1.2.3.4, 2 . 1.2.3.4 } accept",
		"meta nfproto ipv4 { meta mark 0x1 . ip daddr 1.2.3.4, meta mark 0x2 . ip daddr 1.2.3.4 } | accept",
	},
	{
		"ct state . ct status { new . dnat } accept",
		"reads(ct state . ct status { 1 elements }) | accept",
	},
	{
		"ct state vmap { established : accept, related : accept, invalid : drop }",
		"ct state invalid | drop", "ct state established,related | accept",
	},
	{
		"ct state vmap { new : jump d, established : jump e, related: drop }",
		"ct state established | jump e", "ct state related | drop", "ct state new | jump d",
	},
	{
		"ct state vmap { invalid : jump d, established : jump e, related: drop }",
		"| anything(lookup)",
	},
	{"meta mark vmap { 1 : jump d, 2 : drop }", "| anything(lookup)"},
	{
		"ip daddr . meta l4proto . th dport vmap { 10.0.0.1 . tcp . 80 : goto d, 10.0.0.1 . udp . 53 : goto e, 10.0.0.1 . sctp . 99 : goto e, 10.0.0.2 . tcp . 80 : goto d, 10.0.0.3 . tcp . 1 : continue }",
		"meta nfproto ipv4 { ip daddr 10.0.0.1 . meta l4proto tcp . th dport 80, ip daddr 10.0.0.2 . meta l4proto tcp . th dport 80 } | goto d",
		"meta nfproto ipv4 { ip daddr 10.0.0.1 . meta l4proto udp . th dport 53, ip daddr 10.0.0.1 . meta l4proto sctp . th dport 99 } | goto e",
	},
	{
		"numgen random mod 2 vmap { 0 : goto d, 1 : goto e }",
		"reads varying(numgen random mod 2 { 0 }) | goto d", "| goto e",
	},
	{"numgen random mod 2 vmap { 0 : jump d, 1 : jump e }", "| anything(lookup)"},
	{
		"numgen inc mod 10 offset 5 vmap { 5-9 : goto d, 10-20 : goto e }",
		"reads varying(numgen inc mod 10 offset 5 { 5-9 }) | goto d", "| goto e",
	},
	{
		"jhash ip saddr mod 2 seed 0xabc vmap { 0 : goto d, 1 : goto e }",
		"meta nfproto ipv4 reads(jhash ip saddr seed 0xabc mod 2 offset 0 { 0 }) | goto d",
		"meta nfproto ipv4 | goto e",
	},
	{
		"meta mark set 1 tcp dport vmap { 80 : accept, 81 : drop }",
		"| meta mark set 0x1 [meta l4proto tcp] anything(lookup)",
	},
	{"tcp dport { 5, * } accept", "meta l4proto tcp reads(th dport { 2 elements }) | accept"},
	{"ct mark vmap { 1 : accept, * : drop }", "ct mark 0x1 | accept", "ct mark != 0x1 | drop"},
	{
		`iifname vmap { "lo" : accept, "eth*" : drop }`, `iifname "eth*" | drop`,
		`iifname "lo" | accept`,
	},
	{
		"ip daddr . tcp dport vmap { 10.0.0.0/8 . 80-90 : accept, 11.0.0.0/8 . 1-5 : drop }",
		"ip daddr 10.0.0.0/8 meta l4proto tcp th dport 80-90 | accept",
		"ip daddr 11.0.0.0/8 meta l4proto tcp th dport 1-5 | drop",
	},
	{
		"ip daddr . tcp dport vmap { 10.0.0.0/8 . 80-90 : accept, * : drop }",
		"ip daddr 10.0.0.0/8 meta l4proto tcp th dport 80-90 | accept",
		"meta nfproto ipv4 != { ip daddr 10.0.0.0/8 . th dport 80-90 } meta l4proto tcp | drop",
	},
	{"fib saddr . iif oif missing drop", "fib saddr . iif oif missing | drop"},
	{"fib saddr . iif oif exists accept", "fib saddr . iif oif exists | accept"},
	{"fib saddr . mark . iif oif missing drop", "fib saddr . iif oif missing (mark) | drop"},
	{"fib daddr type { local, broadcast } accept", "fib daddr type { local, broadcast } | accept"},
	{"fib daddr . iif type local accept", "reads(fib 2=00000003 3=0000000a 0x02000000) | accept"},
	{"socket transparent 1 accept", "socket transparent 1 (nft) | accept"},
	{"ct status dnat accept", "ct status dnat | accept"},
	{"ct status != dnat accept", "reads(ct status != 0x20000000) | accept"},
	{"ct status assured,confirmed accept", "ct status assured,confirmed | accept"},
	{"ct direction reply accept", "ct direction reply | accept"},
	{
		"icmp type echo-request accept",
		"meta nfproto ipv4 meta l4proto icmp icmp type . code 8 . * | accept",
	},
	{
		"icmp type . icmp code { 8 . 0 } accept",
		"meta nfproto ipv4 meta l4proto icmp icmp type . code 8 . 0 | accept",
	},
	{
		"icmpv6 type 135 icmpv6 code 0 accept",
		"meta nfproto ipv6 meta l4proto ipv6-icmp icmpv6 type . code 135 . 0 | accept",
	},
	{
		"ip daddr . meta l4proto . th dport { 1.2.3.4 . tcp . 80 } accept",
		"ip daddr 1.2.3.4 meta l4proto tcp th dport 80 | accept",
	},
	// If the protocol has no ports, the kernel compares other data of the transport header.
	{
		"meta l4proto . th dport != { tcp . 80, udp . 53 } accept",
		"reads(meta l4proto . th dport != { 2 elements }) | accept",
	},
	{
		"meta l4proto { tcp, udp } meta l4proto . th dport != { tcp . 80, udp . 53 } accept",
		"!= { meta l4proto tcp . th dport 80, meta l4proto udp . th dport 53 } meta l4proto { tcp, udp } | accept",
	},
	{"meta l4proto . th dport vmap { tcp . 80 : accept, * : drop }", "| anything(lookup)"},
	{
		"meta mark set ct mark and 0xf or 0x10",
		"| meta mark set ct mark & 0xf ^ 0x10",
	},
	{"ct mark set meta mark and 0xf xor 0x3", "| ct mark set meta mark & 0xf ^ 0x3"},
	{"meta mark { 1-5, 9 } accept", "meta mark { 1-5, 9 } | accept"},
	{"meta mark >= 7 accept", "meta mark 7-4294967295 | accept"},
	{"meta mark 3-6 accept", "meta mark 3-6 | accept"},
	{
		"numgen random mod 3 vmap { 0 : accept, 1-2 : drop }",
		"reads varying(numgen random mod 3 { 0 }) | accept", "| drop",
	},
	{"numgen inc mod 2 0 accept", "reads varying(numgen inc mod 2 0x00000000) | accept"},
	{
		"tcp dport vmap { 80 : accept, * : drop }", "meta l4proto tcp th dport 80 | accept",
		"meta l4proto tcp th dport != 80 | drop",
	},
	{"meta l4proto 6 reject", "meta l4proto tcp | reject with icmpx port-unreachable"},
	{
		"meta nfproto ipv4 reject with icmp host-unreachable",
		"meta nfproto ipv4 | reject with icmp host-unreachable",
	},
	{"meta l4proto tcp reject with tcp reset", "meta l4proto tcp | reject with tcp reset"},
	{
		"tcp dport 5 tproxy ip to 127.0.0.1 accept",
		"meta nfproto ipv4 meta l4proto tcp th dport 5 | tproxy ip to 127.0.0.1 accept",
	},
	{
		"tcp dport 5 tproxy ip6 to [::1]:50",
		"meta nfproto ipv6 meta l4proto tcp th dport 5 | tproxy ip6 to [::1]:50",
	},
	{
		"limit rate over 5/second burst 9 packets drop",
		"reads varying(limit rate over 5/second burst 9 packets) | drop",
	},
	{
		"jhash ip saddr mod 2 0 accept",
		"meta nfproto ipv4 reads(jhash ip saddr seed 0x0 mod 2 offset 0 0x00000000)? | accept",
	},
}

// natRules is like filterRules, for a NAT chain.
var natRules = [][]string{
	{
		"tcp dport 1 dnat ip to 1.2.3.4-1.2.3.9:80-90",
		"meta nfproto ipv4 meta l4proto tcp th dport 1 | dnat ip to 1.2.3.4-1.2.3.9:80-90",
	},
	{
		"tcp dport 1 dnat ip to 1.2.3.4 persistent",
		"meta nfproto ipv4 meta l4proto tcp th dport 1 | dnat ip to 1.2.3.4",
	},
	{
		"tcp dport 1 dnat ip to 1.2.3.4-1.2.3.9 persistent",
		"meta l4proto tcp th dport 1 | anything(nat)",
	},
	{
		"tcp dport 1 dnat ip6 to [fd00::1]:80",
		"meta nfproto ipv6 meta l4proto tcp th dport 1 | dnat ip6 to [fd00::1]:80",
	},
	{"tcp dport 1 dnat ip to 1.2.3.4:80 random", "meta l4proto tcp th dport 1 | anything(nat)"},
	{"dnat ip to ip saddr map { 1.1.1.1 : 2.2.2.2 }", "ip saddr 1.1.1.1 | dnat ip to 2.2.2.2"},
	{
		"dnat ip to tcp dport map { 80 : 1.2.3.4, 81 : 1.2.3.5, 82 : 1.2.3.4 }",
		"meta nfproto ipv4 meta l4proto tcp th dport { 80, 82 } | dnat ip to 1.2.3.4",
		"meta nfproto ipv4 meta l4proto tcp th dport 81 | dnat ip to 1.2.3.5",
	},
	{
		"dnat ip addr . port to ip daddr . tcp dport map { 1.1.1.1 . 80 : 2.2.2.2 . 8080, 1.1.1.2 . 80 : 2.2.2.3 . 8081 }",
		"ip daddr 1.1.1.1 meta l4proto tcp th dport 80 | dnat ip to 2.2.2.2:8080",
		"ip daddr 1.1.1.2 meta l4proto tcp th dport 80 | dnat ip to 2.2.2.3:8081",
	},
	{"tcp dport 4 redirect to :5-9", "meta l4proto tcp th dport 4 | redirect to :5-9"},
	{
		"tcp dport { 4, 5 } redirect to :tcp dport map { 4 : 50, 5 : 51 }",
		"meta l4proto tcp th dport { 4, 5 } th dport 4 | redirect to :50",
		"meta l4proto tcp th dport { 4, 5 } th dport 5 | redirect to :51",
	},
	{"udp dport 53 redirect", "meta l4proto udp th dport 53 | redirect"},
	{"redirect", "| redirect"},
	{
		"dnat ip to numgen random mod 2 map { 0 : 1.1.1.1, 1 : 1.1.1.2 }",
		"meta nfproto ipv4 reads varying(numgen random mod 2 { 0 }) | dnat ip to 1.1.1.1",
		"meta nfproto ipv4 | dnat ip to 1.1.1.2",
	},
	{
		"meta l4proto sctp sctp dport 5 dnat ip to 1.1.1.1:6",
		"meta nfproto ipv4 meta l4proto sctp th dport 5 | dnat ip to 1.1.1.1:6",
	},
	{"dnat ip to 10.0.0.1", "meta nfproto ipv4 | dnat ip to 10.0.0.1"},
	{"ip6 daddr fd00::1 dnat to fd00::2", "ip6 daddr fd00::1 | dnat ip6 to fd00::2"},
	{
		"dnat ip prefix to ip daddr map { 10.0.0.0/24 : 192.168.1.0/24 }",
		"meta nfproto ipv4 | anything(nat)",
	},
}

// TestDecodedFormOfForeignRules covers rules such as kube-proxy and container runtimes install,
// including the order of conditions and actions.
func TestDecodedFormOfForeignRules(t *testing.T) {
	for base, list := range map[string][][]string{
		"type filter hook prerouting priority -300": filterRules,
		"type nat hook prerouting priority -100":    natRules,
	} {
		ns := netnstest.New(t)
		texts := make([]string, len(list))
		for i, row := range list {
			texts[i] = row[0]
		}
		for i, read := range readForeign(t, ns, base, texts) {
			var got []string
			for _, r := range read {
				got = append(got, formatRule(r))
			}
			if diff := cmp.Diff(list[i][1:], got); diff != "" {
				t.Errorf("%s, -want +got\n%s", texts[i], diff)
			}
		}
	}
}

// readForeign loads rules into a base chain of an inet table, and returns the decoded rules of
// each loaded rule. base is the type, hook and priority of the chain in nft's syntax.
func readForeign(t *testing.T, ns *netns.NS, base string, list []string) [][]rules.Rule {
	t.Helper()
	load(t, ns, fmt.Sprintf(`table inet t {
		%s
		chain d { }
		chain e { }
		chain c { %s; %s; }
	}`, foreignObjects, base, strings.Join(list, "\n")))
	rs, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	var read [][]rules.Rule
	for _, r := range rs.Tables[0].Chain("c").Rules {
		if n := len(read); n > 0 && read[n-1][0].Handle == r.Handle {
			read[n-1] = append(read[n-1], r)
		} else {
			read = append(read, []rules.Rule{r})
		}
	}
	if len(read) != len(list) {
		t.Fatalf("the decoded rules have %d handles, want one for each of %d rules", len(read),
			len(list))
	}
	return read
}
