package save_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// A ruleCase is a rule as people write it, and what it is in the model.
type ruleCase struct {
	table string // of IPv4, or "6 " and one of IPv6
	rule  string
	want  string
}

// ruleCases are rules that iptables-restore loads.
var ruleCases = []ruleCase{
	{"filter", "", "counter"},
	{"filter", "-j ACCEPT", "counter accept"},
	{"filter", "-j DROP", "counter drop"},
	{"filter", "-j RETURN", "counter return"},
	{"filter", "--jump OTHER", "counter jump OTHER"},
	{"filter", "-g OTHER", "counter goto OTHER"},

	{"filter", "-i eth1", `iifname "eth1" counter`},
	{"filter", "! --in-interface eth1", `iifname != "eth1" counter`},
	{"filter", "-o lo -i tap+", `iifname "tap*" oifname "lo" counter`},
	{"filter", "-i +", "counter"},
	{"filter", "-i a23456789012345 -o b2345678901234+", `iifname "a23456789012345" oifname "b2345678901234*" counter`},
	{"filter", "-4 -j ACCEPT", "counter accept"},

	{"filter", "-s 10.0.0.1 ! -d 127.0.0.0/8", "ip saddr 10.0.0.1 ip daddr != 127.0.0.0/8 counter"},
	{"filter", "--src 10.1.2.3/8", "ip saddr 10.0.0.0/8 counter"},
	{"filter", "-s 10.1.2.3/255.255.0.0", "ip saddr 10.1.0.0/16 counter"},
	{"filter", "-s 0.0.0.0/0", "counter"},
	{"filter", "-s 10.0.0.1/255.0.0.255", "unknown(-s 10.0.0.1/255.0.0.255) counter"},
	{
		"filter", "-m iprange --src-range 10.0.0.5-10.0.0.9 ! --dst-range 10.0.0.1-10.0.0.1",
		"ip saddr 10.0.0.5-10.0.0.9 ip daddr != 10.0.0.1 counter",
	},

	{"filter", "-m iprange --src-range 10.0.0.5", "ip saddr 10.0.0.5 counter"},

	{"filter", "-p tcp", "meta l4proto tcp counter"},
	{"filter", "! -p UDP", "meta l4proto != udp counter"},
	{"filter", "-p 47", "meta l4proto 47 counter"},
	{"filter", "-p all", "counter"},
	{"6 filter", "-p mh", "meta l4proto 135 counter"},
	{"6 filter", "-p icmpv6", "meta l4proto ipv6-icmp counter"},
	{"filter", "-p icmp -m icmp --icmp-type 8/0 -j ACCEPT", "meta l4proto icmp unknown(-m icmp --icmp-type 8/0) counter accept"},
	{"filter", "-p icmp ! --icmp-type echo-request", "meta l4proto icmp unknown(! --icmp-type echo-request) counter"},
	{"filter", "-f", "unknown(-f) counter"},
	{"filter", "! -f", "unknown(! -f) counter"},

	{"filter", "-p tcp -m tcp --dport 80", "tcp dport 80 counter"},
	{"filter", "-p tcp --dport 80", "tcp dport 80 counter"},
	{"filter", "-p tcp --dport=0x50", "tcp dport 80 counter"},
	{"filter", "-p udp ! --sport 1000:2000 --destination-port :1023", "udp sport != 1000-2000 udp dport 0-1023 counter"},
	{"filter", "-p tcp --sport 1024:", "tcp sport 1024-65535 counter"},
	{"filter", "-p tcp --dport 0:65535", "meta l4proto tcp counter"},
	{"filter", "-p tcp -m tcp --syn", "tcp flags & (fin | syn | rst | ack) == syn counter"},
	{"filter", "-p tcp ! --syn", "tcp flags & (fin | syn | rst | ack) != syn counter"},
	{"filter", "-p tcp --tcp-flags ALL NONE --dport 5", "tcp dport 5 tcp flags & (fin | syn | rst | psh | ack | urg) == 0x0 counter"},
	{"filter", "-p tcp -m tcp --tcp-option 5 --dport 80", "meta l4proto tcp unknown(-m tcp --tcp-option 5 --dport 80) counter"},
	{"filter", "-p tcp -m multiport --dports 80,443,8000:9000", "tcp dport { 80, 443, 8000-9000 } counter"},
	{"filter", "-p udp -m multiport ! --source-ports 53", "udp sport != 53 counter"},
	{"filter", "-p tcp -m multiport --ports 80,443", "meta l4proto tcp unknown(-m multiport --ports 80,443) counter"},
	{"filter", "-p sctp -m multiport --dports 80", "meta l4proto sctp unknown(-m multiport --dports 80) counter"},

	{"mangle", "-m mark --mark 0x539", "meta mark 0x539 counter"},
	{"mangle", "-m mark ! --mark 1/3", "meta mark & 0x3 != 0x1 counter"},
	{"mangle", "-m connmark --mark 0x1/0xf -m mark --mark 017", "meta mark 0xf ct mark & 0xf == 0x1 counter"},
	{"mangle", "-m owner --uid-owner 1337", "meta skuid 1337 counter"},
	{"mangle", "-m owner --uid-owner 7-9 ! --gid-owner 3", "meta skuid 7-9 meta skgid != 3 counter"},
	{"mangle", "-m owner --socket-exists", "meta skuid 0-4294967295 counter"},
	{"mangle", "-m owner ! --socket-exists", "meta skuid != 0-4294967295 counter"},
	{"mangle", "-m owner --uid-owner 3 --socket-exists ! --gid-owner 5", "meta skuid 3 meta skgid != 5 counter"},
	{"mangle", "-m owner ! --uid-owner 3 ! --socket-exists", "meta skuid != 0-4294967295 counter"},
	{"mangle", "-m owner --uid-owner 3 ! --socket-exists", "unknown(-m owner --uid-owner 3 ! --socket-exists) counter"},
	{"mangle", "-m owner --gid-owner 3 --suppl-groups", "unknown(-m owner --gid-owner 3 --suppl-groups) counter"},
	{"mangle", "-m conntrack --ctstate RELATED,ESTABLISHED", "ct state established,related counter"},
	{"mangle", "-m conntrack ! --ctstate new,invalid,untracked", "ct state != new,invalid,untracked counter"},
	{"mangle", "-m conntrack --ctexpire 5:10", "unknown(-m conntrack --ctexpire 5:10) counter"},
	{"mangle", "-m conntrack --ctstate NEW,DNAT", "unknown(-m conntrack --ctstate NEW,DNAT) counter"},
	{"mangle", "-m conntrack --ctstate NEW --ctdir ORIGINAL", "unknown(-m conntrack --ctstate NEW --ctdir ORIGINAL) counter"},
	{"mangle", "-m state ! --state NEW", "ct state != new counter"},

	{"mangle", `-m comment --comment "it's \"so\" \\ -j DROP" -j ACCEPT`, "counter accept"},
	{"filter", `-m string --string "a -j b" --algo bm -j ACCEPT`, `unknown(-m string --string "a -j b" --algo bm) counter accept`},
	{
		"filter", "-m addrtype ! --dst-type LOCAL ! -s 10.0.0.1 -j ACCEPT",
		"ip saddr != 10.0.0.1 unknown(-m addrtype ! --dst-type LOCAL) counter accept",
	},
	{"filter", "-p tcp -m limit --limit 5/min -m tcp --dport 80", "tcp dport 80 unknown(-m limit --limit 5/min) counter"},

	{"mangle", "-j MARK --set-mark 0x53a", "counter meta mark set 0x53a"},
	{"mangle", "-j MARK --set-mark 5/1", "counter meta mark set meta mark & 0xfffffffa | 0x5"},
	{"mangle", "-j MARK --set-xmark 1/3", "counter meta mark set meta mark & 0xfffffffc | 0x1"},
	{"mangle", "-j MARK --set-xmark 4/3", "counter unknown(-j MARK --set-xmark 4/3)"},
	{"mangle", "-j MARK --and-mark 0xff", "counter meta mark set meta mark & 0xff | 0x0"},
	{"mangle", "-j MARK --or-mark 3", "counter meta mark set meta mark & 0xfffffffc | 0x3"},
	{"mangle", "-j MARK --xor-mark 3", "counter unknown(-j MARK --xor-mark 3)"},
	{"mangle", "-j CONNMARK --save-mark", "counter ct mark set meta mark"},
	{"mangle", "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "counter meta mark set ct mark"},
	{"mangle", "-j CONNMARK --save-mark --mask 3", "counter unknown(-j CONNMARK --save-mark --mask 3)"},
	{"mangle", "-j CONNMARK --save-mark --left-shift-mark 3", "counter unknown(-j CONNMARK --save-mark --left-shift-mark 3)"},
	{"mangle", "-j CONNMARK --set-mark 3", "counter unknown(-j CONNMARK --set-mark 3)"},
	{"raw", "-j CT --zone 2", "counter ct zone set 2"},
	{"raw", "-j CT", "counter ct zone set 0"},
	{"raw", "-j CT --notrack", "counter unknown(-j CT --notrack)"},
	{"raw", "-j CT --zone mark", "counter unknown(-j CT --zone mark)"},
	{"raw", "-j CT --zone-orig 3", "counter unknown(-j CT --zone-orig 3)"},
	{"raw", "-j TRACE", "counter"},
	{
		"mangle", "-p tcp -j TPROXY --on-port 15006 --tproxy-mark 0x539",
		"meta l4proto tcp counter TPROXY redirect 0.0.0.0:15006 mark 0x539/0xffffffff",
	},
	{
		"mangle", "-p udp -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 1/3",
		"meta l4proto udp counter TPROXY redirect 0.0.0.0:1 mark 0x1/0x3",
	},
	{"mangle", "-p tcp -j TPROXY --on-port 1", "meta l4proto tcp counter TPROXY redirect 0.0.0.0:1 mark 0x0/0x0"},
	{
		"mangle", "-p tcp -j TPROXY --on-port 1 --on-ip 127.0.0.1",
		"meta l4proto tcp counter unknown(-j TPROXY --on-port 1 --on-ip 127.0.0.1)",
	},
	{"mangle", "-p tcp -j TPROXY --on-port 0", "meta l4proto tcp counter unknown(-j TPROXY --on-port 0)"},
	{"nat", "-p tcp -j REDIRECT --to-ports 15001", "meta l4proto tcp counter redirect to :15001"},
	{"nat", "-p tcp -j REDIRECT --to-port 15001", "meta l4proto tcp counter redirect to :15001"},
	{"nat", "-p tcp -j REDIRECT --to-ports 80-80", "meta l4proto tcp counter redirect to :80"},
	{"nat", "-p tcp -j REDIRECT --to-ports 80-90", "meta l4proto tcp counter unknown(-j REDIRECT --to-ports 80-90)"},
	{"nat", "-p tcp -j REDIRECT --to-ports 80 --random", "meta l4proto tcp counter unknown(-j REDIRECT --to-ports 80 --random)"},
	{"nat", "-j REDIRECT", "counter unknown(-j REDIRECT)"},
	{"nat", "-p tcp -j DNAT --to-destination :8080", "meta l4proto tcp counter dnat to :8080"},
	{"nat", "-p tcp -j DNAT --to-destination 10.0.0.1:80", "meta l4proto tcp counter unknown(-j DNAT --to-destination 10.0.0.1:80)"},
	{"nat", "-j DNAT --to-destination 10.0.0.1 --random", "counter unknown(-j DNAT --to-destination 10.0.0.1 --random)"},
	{"nat", "-j MASQUERADE", "counter unknown(-j MASQUERADE)"},
	{"filter", "-j NFLOG --nflog-group 5", "counter"},
	{"filter", `-j LOG --log-prefix "a b"`, "counter"},
	{"filter", "-p tcp -j REJECT --reject-with tcp-reset", "meta l4proto tcp counter unknown(-j REJECT --reject-with tcp-reset)"},
	{"filter", "-j NFQUEUE --queue-num 3", "counter unknown(-j NFQUEUE --queue-num 3)"},

	{
		"6 mangle", "-i lo -s fd00::/8 ! -d ::1 -p tcp -g OTHER",
		`iifname "lo" ip6 saddr fd00::/8 ip6 daddr != ::1 meta l4proto tcp counter goto OTHER`,
	},
	{"6 mangle", "-s fd00::1/ffff:: -p ipv6-icmp", "ip6 saddr fd00::/16 meta l4proto ipv6-icmp counter"},
	{"6 mangle", "-s ::ffff:10.0.0.0/104", "ip6 saddr ::ffff:10.0.0.0/104 counter"},
	{"6 mangle", "-d ::/0 -j MARK --set-mark 5", "counter meta mark set 0x5"},
	{
		"6 mangle", "-p udp -j TPROXY --on-port 9 --on-ip :: --tproxy-mark 7/7",
		"meta l4proto udp counter TPROXY redirect 0.0.0.0:9 mark 0x7/0x7",
	},
	{"6 mangle", "-m iprange ! --dst-range fd00::1-fd00::9", "ip6 daddr != fd00::1-fd00::9 counter"},
	{"6 nat", "-p udp -j DNAT --to-destination :53", "meta l4proto udp counter dnat to :53"},
	{"6 nat", "-p udp -j REDIRECT --to-ports 53", "meta l4proto udp counter redirect to :53"},
	{"6 raw", "-p udp --sport 53 -j CT --zone 1", "udp sport 53 counter ct zone set 1"},
}

// save is the text around the rule.
func (c ruleCase) save() (rules.Family, string) {
	family, table := rules.IPv4, c.table
	if six, ok := strings.CutPrefix(table, "6 "); ok {
		family, table = rules.IPv6, six
	}
	return family, "*" + table + "\n:OTHER - [0:0]\n:RULES - [0:0]\n[3:99] -A RULES " + c.rule + "\nCOMMIT\n"
}

func TestParseRule(t *testing.T) {
	for _, tc := range ruleCases {
		t.Run(tc.table+" "+tc.rule, func(t *testing.T) {
			r := parsedRule(t, tc)
			if r.String() != tc.want || r.Position != 4 || r.Hits != (rules.Hits{Packets: 3, Bytes: 99}) {
				t.Errorf("got %s, position %d, hits %v, want %s", r.String(), r.Position, r.Hits, tc.want)
			}
		})
	}
}

// /etc/protocols of other distributions has these names, which iptables takes there.
func TestParseProtocolsThatFewSystemsKnow(t *testing.T) {
	for name, want := range map[string]string{"ipv6-crypt": "meta l4proto 50 counter", "ipv6-auth": "meta l4proto 51 counter"} {
		r := parsedRule(t, ruleCase{table: "filter", rule: "-p " + name})
		if got := r.String(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func parsedRule(t *testing.T, c ruleCase) rules.Rule {
	t.Helper()
	family, text := c.save()
	return parse(t, family, text)[0].Chain("RULES").Rules[0]
}

// parse reads a text that must be right.
func parse(t testing.TB, family rules.Family, text string) []rules.Table {
	t.Helper()
	tables, err := save.Parse(family, "test.save", strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v, in:\n%s", err, text)
	}
	return tables
}

// TestParseRuleAsTheKernelHasIt loads each rule. What iptables-legacy-save prints of it, and what is in the kernel, are the same.
func TestParseRuleAsTheKernelHasIt(t *testing.T) {
	ns := netnstest.New(t)
	for _, tc := range ruleCases {
		t.Run(tc.table+" "+tc.rule, func(t *testing.T) {
			want := parsedRule(t, tc)
			family, text := tc.save()
			istiotest.Run(t, ns, text, restoreProgram[family], "--counters")
			saved := istiotest.Save(t, ns, istiotest.Legacy, family)
			inKernel, err := compat.ReadTables(ns)
			if err != nil {
				t.Fatal(err)
			}
			for from, tables := range map[string][]rules.Table{"saved": parse(t, family, saved), "in the kernel": inKernel} {
				table := tables[slices.IndexFunc(tables, func(t rules.Table) bool {
					return t.Family == family && t.Name == strings.TrimPrefix(tc.table, "6 ")
				})]
				got := table.Chain("RULES").Rules[0]
				if strings.Contains(tc.want, "unknown") {
					if !strings.Contains(got.String(), "unknown(") {
						t.Errorf("%s: %s", from, got.String())
					}
					continue
				}
				got.Position = want.Position
				if diff := cmp.Diff(want, got, exportAll); diff != "" {
					t.Errorf("saved as\n%s\n-as written +%s:\n%s", saved, from, diff)
				}
			}
		})
	}
}

var restoreProgram = map[rules.Family]string{rules.IPv4: "iptables-legacy-restore", rules.IPv6: "ip6tables-legacy-restore"}
