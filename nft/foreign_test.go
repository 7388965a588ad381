package nft

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// foreignObjects contains the objects to which rules in the lists of foreign rules refer.
const foreignObjects = `
	set ports { type inet_service; elements = { 80, 443 }; }
	set joined { type ipv4_addr; flags interval; auto-merge; elements = { 1.2.3.4, 1.2.3.5 }; }
	set counted { type ipv4_addr; counter; elements = { 1.2.3.4 }; }
	set limited { type ipv4_addr; limit rate 1/second; elements = { 1.2.3.4 }; }
	set passing { type ipv4_addr; flags timeout; elements = { 1.2.3.4 timeout 1h }; }
	set none { type ipv4_addr; }
	set growing { type ipv4_addr; flags dynamic; timeout 1m; }
	set wild { type ifname; flags interval; elements = { "eth*", "lo" }; }
	map decided { type ipv4_addr : verdict; flags interval; elements = { 10.0.0.0/8 : accept, 192.168.0.0/16 : drop }; }
	set pair { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80-90 }; }
	counter named { }
	quota mega { 1 mbytes }
	chain other { }
`

// foreignRules contains rules in nft's syntax and in their decoded form. The decoded form is empty
// if both forms are equal.
var foreignRules = []struct{ rule, want string }{
	{"tcp dport 80 accept", ""},
	{"tcp dport 10-20 accept", ""},
	{"tcp dport != 10-20 accept", ""},
	{"tcp dport != { 80, 443 } accept", ""},
	{"tcp dport >= 1024 accept", "tcp dport 1024-65535 accept"},
	{"tcp dport <= 1024 accept", "tcp dport 0-1024 accept"},
	{"tcp dport >= 1024 tcp dport <= 2000 accept", "tcp dport 1024-65535 tcp dport 0-2000 accept"},
	{"tcp dport >= 1024 meta mark 0x1 accept", "tcp dport 1024-65535 meta mark 0x1 accept"},
	{"tcp dport > 1024 accept", "tcp dport 1025-65535 accept"},
	{"tcp dport < 1024 accept", "tcp dport 0-1023 accept"},
	{"tcp dport @ports accept", "tcp dport { 80, 443 } accept"},
	{"tcp dport & 0xff00 == 0x100 accept", "tcp dport 256-511 accept"},
	{"tcp dport & 0xfff3 != 80 accept", "tcp dport != { 80, 84, 88, 92 } accept"},
	{
		// 2^15 ports are no list for a reader.
		"tcp dport & 1 == 1 accept", "meta l4proto tcp unknown(th dport & 0x0001 0x0001) accept",
	},
	{"tcp sport 1 tcp dport 2 accept", ""},
	{"th dport 53 accept", "unknown(th dport 0x0035) accept"},
	{"meta l4proto { tcp, udp } th dport 53 accept", ""},
	{"udp dport { 53, 100-200 } accept", ""},
	{"tcp dport { 80-90, 100 } tcp sport 5 drop", "tcp sport 5 tcp dport { 80-90, 100 } drop"},
	{"meta l4proto != tcp accept", ""},
	{"meta l4proto 0-10 accept", "meta l4proto { 0, icmp, 2, 3, 4, 5, tcp, 7, 8, 9, 10 } accept"},
	{"ip protocol tcp accept", "meta nfproto ipv4 meta l4proto tcp accept"},

	{"ip saddr 1.2.3.4 ip daddr 5.6.7.8 accept", ""},
	{"ip daddr @none accept", "meta nfproto ipv4 { } accept"},
	{"ip saddr 1.2.3.4 ip daddr @none accept", "ip saddr 1.2.3.4 { } accept"},
	{"ip saddr 10.0.0.0/8 ip daddr != 10.0.0.0/9 accept", ""},
	{"ip saddr >= 10.0.0.0 accept", "ip saddr 10.0.0.0-255.255.255.255 accept"},
	{"ip daddr 10.0.0.1-10.0.0.9 accept", ""},
	{"ip daddr { 10.0.0.0/8, 192.168.0.0/16, 255.255.255.255 } accept", ""},
	{"ip6 daddr fd00::/8 accept", ""},
	{"ip daddr @joined accept", ""},
	{"ip daddr @counted accept", ""},
	{"ip daddr @limited accept", "meta nfproto ipv4 unknown(ip daddr @limited) accept"},
	{"ip daddr @passing accept", "ip daddr @passing accept"},
	{
		"ip daddr & 255.0.0.255 == 10.0.0.5 accept",
		"meta nfproto ipv4 unknown(ip daddr & 0xff0000ff 0x0a000005) accept",
	},
	{"ip ttl 5 accept", "meta nfproto ipv4 unknown(@nh,64,8 0x05) accept"},
	{"ip saddr . tcp dport { 1.2.3.4 . 80 } accept", "ip saddr 1.2.3.4 tcp dport 80 accept"},
	{"ip saddr . tcp dport @pair accept", "ip saddr 10.0.0.0/8 tcp dport 80-90 accept"},
	{
		"ip saddr . ip daddr . tcp dport . tcp sport { 1.2.3.4 . 5.6.7.8 . 80 . 81 } accept",
		"ip saddr 1.2.3.4 ip daddr 5.6.7.8 tcp sport 81 tcp dport 80 accept",
	},
	{"meta nfproto ipv6 meta mark 0x1 accept", ""},
	{
		"icmp type echo-request accept",
		"meta nfproto ipv4 meta l4proto icmp icmp type . code 8 . * accept",
	},
	{"@nh,128,32 0x01020304 accept", "unknown(@nh,128,32 0x01020304) accept"},

	{`iifname "eth0" accept`, ""},
	{`iifname "eth*" accept`, ""},
	{`iifname != { "eth0", "eth1" } accept`, ""},
	{"iifname @wild accept", `iifname { "eth*", "lo" } accept`},
	{`iifname . tcp dport { "eth0" . 80 } accept`, `iifname "eth0" tcp dport 80 accept`},
	{"iif lo accept", `iifname "lo" accept`},
	{"oif != lo accept", `oifname != "lo" accept`},
	{"iif 7 accept", "unknown(iif 0x07000000) accept"},

	{"meta skuid 1337 accept", ""},
	{"meta skuid 1000-2000 accept", ""},
	{"meta skuid { 5, 1000-2000 } accept", ""},
	{"meta skuid != 1-5 accept", ""},
	{"meta skgid != { 1, 2 } accept", ""},
	{"meta skuid >= 1000 accept", "meta skuid 1000-4294967295 accept"},
	{"meta mark & 0xff != 0x1 accept", ""},
	{"meta mark >= 0x10 accept", "meta mark 16-4294967295 accept"},
	{"meta mark { 1, 2 } accept", ""},
	{
		"meta mark 0x1 numgen random mod 2 0 accept",
		"meta mark 0x1 unknown(numgen random mod 2 0x00000000) accept",
	},
	{"ct mark 0x1 accept", ""},
	{"ct state established,related accept", ""},
	{"ct state { new, established } accept", "ct state new,established accept"},
	{"ct state != { new, untracked } accept", "ct state != new,untracked accept"},
	{
		"ct state vmap { new : accept, established : drop }",
		"ct state established drop\nct state new accept",
	},
	{"ct direction original accept", ""},
	{"tcp flags & (syn|ack) != syn accept", "tcp flags & (syn | ack) != syn accept"},
	{
		"tcp flags == syn accept",
		"tcp flags & (fin | syn | rst | psh | ack | urg | ecn | cwr) == syn accept",
	},
	{
		"tcp flags != { syn, ack } accept",
		"!= { tcp flags & (fin | syn | rst | psh | ack | urg | ecn | cwr) == syn, " +
			"tcp flags & (fin | syn | rst | psh | ack | urg | ecn | cwr) == ack } meta l4proto tcp accept",
	},
	{
		"tcp flags & (syn|ack) { syn, ack } accept",
		"{ tcp flags & (syn | ack) == syn, tcp flags & (syn | ack) == ack } meta l4proto tcp accept",
	},
	{"meta mark & 0xff { 1, 2 } accept", "{ meta mark & 0xff == 0x1, meta mark & 0xff == 0x2 } accept"},
	{"ct status & (snat|dnat) == dnat accept", "ct status != snat ct status dnat accept"},
	{
		"ct status & (snat|dnat) != dnat accept",
		"!= { ct status != snat . ct status dnat } accept",
	},
	{"ct state & (new|established) == new accept", "ct state new accept"},
	{"ct state & (new|established) != new accept", "ct state != new accept"},
	// A packet has one state.
	{"ct state != established,related accept", "ct state new,established,related,invalid,untracked accept"},
	{
		"ct state == established|related accept",
		"ct state != new,established,related,invalid,untracked accept",
	},
	{
		"ct state & (new|established|related) == new|related accept",
		"ct state != new,established,related,invalid,untracked accept",
	},

	{"meta mark set 0x1", ""},
	{
		"meta mark set tcp dport map { 80 : 1, 81 : 2, 443 : 1 }",
		"tcp dport { 80, 443 } meta mark set 0x1\ntcp dport 81 meta mark set 0x2",
	},
	{"ct mark set iifname map { lo : 5 }", `iifname "lo" ct mark set 0x5`},
	{"meta mark set ct mark map { 1 : 2 }", "ct mark 0x1 meta mark set 0x2"},
	{
		// The first write would change the key of the second.
		"meta mark set meta mark map { 1 : 2, 2 : 3 }",
		"unknown(meta mark set meta mark map { 2 elements })",
	},
	{
		// The branches would be two rules that continue.
		"meta mark set tcp dport map { 80 : 1, 81 : 2 } accept",
		"meta l4proto tcp unknown(meta mark set th dport map { 2 elements }) accept",
	},
	{
		"ct mark set tcp dport map { 80 : 1 } tcp sport 5",
		"meta l4proto tcp unknown(ct mark set th dport map { 1 elements }) th sport 5",
	},
	{
		// Each branch would repeat the first write.
		"meta mark set meta mark ^ 1 ct mark set tcp dport map { 80 : 1, 81 : 2 }",
		"meta mark set meta mark & 0xffffffff ^ 0x1 meta l4proto tcp unknown(ct mark set th dport map { 2 elements })",
	},
	{
		// The last branch would have no condition.
		"meta mark set numgen inc mod 2 map { 0 : 1, 1 : 2 }",
		"unknown(meta mark set numgen inc mod 2 map { 2 elements })",
	},
	{"meta mark set meta mark | 0x1", "meta mark set meta mark & 0xfffffffe | 0x1"},
	{"meta mark set meta mark ^ 0x1", "meta mark set meta mark & 0xffffffff ^ 0x1"},
	{"meta mark set ct mark & 0xf", ""},
	{"ct mark set meta mark", ""},
	{"ct mark set 0x5", ""},
	{"ct zone set 5", ""},
	{"ct original zone set 5", "unknown(ct)"},
	{
		"meta mark set 0x1 ip daddr 1.2.3.4 accept",
		"meta mark set 0x1 meta nfproto ipv4 ip daddr 1.2.3.4 accept",
	},
	{"counter ip daddr 1.2.3.4 accept", "ip daddr 1.2.3.4 counter accept"},
	{"counter name named accept", `counter name "named" accept`},
	{"quota name mega accept", "unknown(quota name mega) accept"},
	{"quota over 10 mbytes drop", "unknown(quota over 10485760 bytes) drop"},
	{`log prefix "x" accept`, "log accept"},
	{"counter log group 3 accept", "counter log group 3 accept"},
	{"limit rate 5/second accept", "unknown(limit rate 5/second burst 5 packets) accept"},
	{"fib daddr type local accept", ""},
	{"socket transparent 1 accept", "socket transparent 1 (nft) accept"},
	{
		"tcp dport vmap { 80 : accept, 81 : drop, 443 : accept }",
		"tcp dport { 80, 443 } accept\ntcp dport 81 drop",
	},
	{
		"tcp dport vmap { 80-90 : jump other, 100 : goto other }",
		"tcp dport 80-90 jump other\ntcp dport 100 goto other",
	},
	{"ip saddr vmap @decided", "ip saddr 10.0.0.0/8 accept\nip saddr 192.168.0.0/16 drop"},
	{"meta l4proto udp counter udp dport vmap { 53 : return }", "udp dport 53 counter return"},
	{
		"meta mark set 0x1 tcp dport vmap { 80 : accept }",
		"meta mark set 0x1 meta l4proto tcp th dport 80 accept",
	},
	{"ip saddr . tcp dport vmap { 1.2.3.4 . 80 : accept }", "ip saddr 1.2.3.4 tcp dport 80 accept"},
	{"meta mark vmap { 1 : accept, 2 : drop }", "meta mark 0x1 accept\nmeta mark 0x2 drop"},
	{"ct mark vmap { 1 : jump other, 2 : drop }", "unknown(lookup)"},
	{"tcp dport vmap { 80 : continue }", "meta l4proto tcp unknown(map without effect)"},
	{"update @growing { ip saddr }", "meta nfproto ipv4 unknown(dynset @growing)"},
	{"notrack", ""},
	{"reject", "reject with icmpx port-unreachable"},
	{"continue", "continue"},
	{"jump other", ""},
	{"goto other", ""},
	{"tcp dport 1 tproxy to :80 accept", ""},
	{"tcp dport 1 tproxy ip to :80 accept", "meta nfproto ipv4 tcp dport 1 tproxy to :80 accept"},
	{
		"meta nfproto ipv6 tcp dport 1 tproxy ip6 to :80 accept",
		"meta nfproto ipv6 tcp dport 1 tproxy to :80 accept",
	},
	{
		"ip daddr 1.1.1.1 tcp dport 1 tproxy ip to :80 accept",
		"ip daddr 1.1.1.1 tcp dport 1 tproxy to :80 accept",
	},
	{"tcp dport 1 tproxy to :0 accept", "tcp dport 1 tproxy to  accept"},
	{
		"tcp dport 1 tproxy ip to 127.0.0.1:80 accept",
		"meta nfproto ipv4 tcp dport 1 tproxy ip to 127.0.0.1:80 accept",
	},
}

// foreignNAT is like foreignRules, but for a NAT chain.
var foreignNAT = []struct{ rule, want string }{
	{"tcp dport 1 redirect to :80", ""},
	{"tcp dport 1 redirect to :0", "tcp dport 1 unknown(redir)"},
	{"tcp dport 1 redirect to :80-90", ""},
	{"tcp dport 1 redirect to :80 random", "tcp dport 1 unknown(redir)"},
	{"redirect", ""},
	{"tcp dport 1 dnat ip to 1.2.3.4", "meta nfproto ipv4 tcp dport 1 dnat ip to 1.2.3.4"},
	{"tcp dport 1 dnat to :80", ""},
	{"ip6 daddr fd00::1 tcp dport 1 dnat to :80", ""},
	{"tcp dport 1 dnat to :80-90", ""},
	{"tcp dport 1 dnat to :80 random", "tcp dport 1 unknown(nat)"},
	{"tcp dport 1 dnat ip to 1.2.3.4:80", "meta nfproto ipv4 tcp dport 1 dnat ip to 1.2.3.4:80"},
	{"tcp dport vmap { 1 : accept, 2 : return }", "tcp dport 1 accept\ntcp dport 2 return"},
}

// TestForeignRulesAreDecodedOrUnknown checks that each expression is decoded exactly or as an
// unknown.
func TestForeignRulesAreDecodedOrUnknown(t *testing.T) {
	ns := netnstest.New(t)
	var filter, nat, want []string
	for _, row := range foreignRules {
		filter = append(filter, row.rule)
		want = append(want, strings.Split(decodedForm(row.rule, row.want), "\n")...)
	}
	for _, row := range foreignNAT {
		nat = append(nat, row.rule)
		want = append(want, strings.Split(decodedForm(row.rule, row.want), "\n")...)
	}
	load(t, ns, fmt.Sprintf(`table inet foreign {
		%s
		chain filter { type filter hook prerouting priority 0; policy drop; %s; }
		chain nat { type nat hook prerouting priority 5; %s; }
		chain post { type nat hook postrouting priority 100; masquerade; }
		chain early { type filter hook ingress device lo priority -500; log; }
	}`, foreignObjects, strings.Join(filter, "\n"), strings.Join(nat, "\n")))
	want = append(want, "unknown(masquerade)", "log")

	rs, err := ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, ruleTexts(rs)); diff != "" {
		t.Errorf("decoded rules (-want +got):\n%s", diff)
	}
	checkHandles(t, ns, rs)
	for name, want := range map[string]rules.Base{
		"filter": {Type: rules.Filter, Hook: rules.Prerouting, Drop: true},
		"nat":    {Type: rules.NAT, Hook: rules.Prerouting, Priority: 5},
		"post":   {Type: rules.NAT, Hook: rules.Postrouting, Priority: 100},
		"early":  {Type: rules.Filter, Hook: rules.Ingress, Priority: -500},
	} {
		if got := rs.Tables[0].Chain(name).Base; *got != want {
			t.Errorf("chain %s: %v, want %v", name, got, &want)
		}
	}
	if base := rs.Tables[0].Chain("other").Base; base != nil {
		t.Errorf("chain other: %v, want no hook", base)
	}
}

// decodedForm returns the decoded form of a row of foreignRules.
func decodedForm(rule, want string) string {
	if want == "" {
		return rule
	}
	return want
}

// unknownReason matches an unknown expression with the reason why it is unknown.
var unknownReason = regexp.MustCompile(`unknown\((\w+): [^)]*\)`)

// ruleTexts formats the rules of all chains in order, without the reasons of unknown expressions.
func ruleTexts(rs rules.Ruleset) []string {
	var texts []string
	for _, table := range rs.Tables {
		for _, chain := range table.Chains {
			for _, r := range chain.Rules {
				texts = append(texts, unknownReason.ReplaceAllString(r.String(), "unknown($1)"))
			}
		}
	}
	return texts
}

var (
	listedTable = regexp.MustCompile(`^table (\S+ \S+) \{`)
	listedChain = regexp.MustCompile(`^\tchain (\S+) \{`)
	listedRule  = regexp.MustCompile(`^\t\t.* # handle (\d+)$`)
)

// checkHandles checks that each chain has exactly the rules that the nft command lists, in the same
// order.
func checkHandles(t *testing.T, ns *netns.NS, rs rules.Ruleset) {
	t.Helper()
	want, got := map[string][]string{}, map[string][]string{}
	table, chain := "", ""
	for line := range strings.SplitSeq(nftCommand(t, ns, "", "-a", "list", "ruleset"), "\n") {
		if m := listedTable.FindStringSubmatch(line); m != nil {
			table = m[1]
		} else if m := listedChain.FindStringSubmatch(line); m != nil {
			chain = table + " " + m[1]
		} else if m := listedRule.FindStringSubmatch(line); m != nil && chain != "" {
			want[chain] = append(want[chain], m[1])
		} else if strings.HasPrefix(line, "\t}") {
			chain = ""
		}
	}
	for _, table := range rs.Tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				name := fmt.Sprintf("%s %s %s", table.Family, table.Name, c.Name)
				// All rules that represent one verdict map have the same handle.
				if handle := fmt.Sprint(r.Handle); len(got[name]) == 0 ||
					got[name][len(got[name])-1] != handle {
					got[name] = append(got[name], handle)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("rules by chain and handle, as the nft command lists them (-) and as read (+):\n%s", diff)
	}
}
