package nftjson_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/nftjson"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// knownRules are rules that the listing states completely.
var knownRules = []string{
	"meta nfproto ipv6 drop",
	"meta nfproto != ipv6 drop",
	"meta l4proto tcp drop",
	"meta l4proto != { tcp, udp } drop",
	"ip protocol icmp drop",
	"ip protocol != tcp drop",
	"iifname lo drop",
	`iifname != "eth*" drop`,
	`oifname { "a", "c" } drop`,
	"meta skuid 1337 drop",
	"meta skuid != { 1, 5-9 } drop",
	"meta skgid daemon drop",
	"meta mark 0x539 drop",
	"meta mark != { 1, 4-9 } drop",
	"meta mark & 0xff != 0x1 drop",
	"ct mark 7 drop",
	"ct mark & 0xf0 == 0x10 drop",
	"ct state new drop",
	"ct state established,related drop",
	"ct state != established drop",
	"ct state { invalid, untracked } drop",
	"ip saddr 10.0.0.1 drop",
	"ip daddr != 10.0.0.0/8 drop",
	"ip daddr { 10.0.0.0/8, 1.2.3.4, 3.3.3.3-3.3.3.9 } drop",
	"ip6 daddr != fd00::/8 drop",
	"ip6 saddr { fd00::1, fd00::5-fd00::9 } drop",
	"ip daddr @fixed drop",
	"ip daddr != @fixed drop",
	"tcp dport 80 drop",
	"tcp dport != { 80, 90-99 } drop",
	"udp sport 53 drop",
	"meta l4proto { tcp, udp } th dport != 53 drop",
	"counter tcp dport 80 counter drop",
	`log prefix "x" tcp dport 80 drop`,
	"meta mark set 7",
	"meta mark set ct mark drop",
	"ct mark set meta mark",
	"meta mark set 7 tcp dport 80 drop",
	"tcp dport 80 jump below",
	"tcp dport 80 goto below",
	"tcp dport 80 return",
}

// unknownRules are rules of which the listing or the package leaves something open.
var unknownRules = []string{
	"iif lo drop",
	"ip6 nexthdr tcp drop",
	"tcp flags & (syn | ack) == syn drop",
	"ip dscp cs1 drop",
	"ip daddr . tcp dport { 1.1.1.1 . 80 } drop",
	"tcp dport vmap { 22 : drop }",
	"limit rate 1/second drop",
	"numgen inc mod 2 0 drop",
	"ip daddr @changing drop",
	"add @changing { ip daddr } drop",
	"ct direction reply drop",
	"ct status dnat drop",
	"ct state != established,related drop",
	"meta mark set meta mark or 1 drop",
	"meta mark > 7 drop",
	`oifname { "a", "b*", "c" } drop`,
	"fib daddr type local drop",
	"reject",
	"ct original ip daddr 10.0.0.1 drop",
}

const ruleset = `flush ruleset
table inet t {
	set fixed { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 172.16.0.1-172.16.0.9 }; }
	set changing { type ipv4_addr; flags dynamic,timeout; timeout 1h; }
	chain below { meta mark set 9; }
	chain out { type filter hook %s priority %d; policy accept; %s; }
}`

// TestListingIsWhatTheKernelHolds compares what nft lists with what the kernel holds, packet by
// packet.
func TestListingIsWhatTheKernelHolds(t *testing.T) {
	binary := netnstest.RequireBinary(t, "nft")
	ns := netnstest.New(t)
	run := func(stdin string, args ...string) []byte {
		cmd := exec.Command(binary, args...)
		cmd.Stdin = strings.NewReader(stdin)
		var out []byte
		if err := ns.Do(func() (err error) {
			out, err = cmd.CombinedOutput()
			return err
		}); err != nil {
			t.Fatalf("%s\n%v: %s", stdin, err, out)
		}
		return out
	}
	check := func(hook, rule string, want ...diff.Verdict) {
		run(fmt.Sprintf(ruleset, hook, -150, rule), "-f", "-")
		listing, err := nftjson.Parse("listing", bytes.NewReader(run("", "-j", "list", "ruleset")))
		if err != nil {
			t.Errorf("%s at %s: %v", rule, hook, err)
			return
		}
		held, err := nft.ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		if len(listing.Undecided)+len(listing.Elsewhere) > 0 {
			t.Errorf("%s at %s: %q, %q", rule, hook, listing.Undecided, listing.Elsewhere)
		}
		listed := rules.Ruleset{Tables: listing.Tables}
		result := diff.Decide(diff.Side{Ruleset: held}, diff.Side{Ruleset: listed}, diff.Options{
			Families: []rules.Family{rules.IPv4, rules.IPv6}, Budget: diff.DefaultBudget,
		})
		for _, verdict := range want {
			if result.Verdict(true) == verdict {
				return
			}
		}
		t.Errorf("%s at %s: %s, want %s; the kernel holds\n%sand listed is\n%s", rule, hook,
			result.Verdict(true), want, held, listed)
	}
	for _, hook := range []string{"output", "prerouting"} {
		for _, rule := range knownRules {
			check(hook, rule, diff.Equivalent)
		}
		for _, rule := range unknownRules {
			check(hook, rule, diff.Undecidable)
		}
	}
}

func TestWhatIsNoListing(t *testing.T) {
	const table = `{"table":{"family":"ip","name":"t"}},`
	for text, says := range map[string]string{
		"table ip t {": "want the output of nft -j list ruleset",
		"{}":           `there is no list "nftables"`,
		`{"nftables":[{"metainfo":{"json_schema_version":2}}]}`: "object 1, metainfo: version 2 of the format: want 1",
		`{"nftables":[{"table":[]}]}`:                           "object 1, table: ",
		`{"nftables":[{"element":{}}]}`:                         "elements apart from their set",
		`{"nftables":[` + table +
			`{"chain":{"family":"ip","table":"t","name":"c","hook":"output"}}]}`: "no type or no priority",
		`{"nftables":[` + table +
			`{"chain":{"family":"ip","table":"t","name":"c","type":"x","hook":"output","prio":0}}]}`: `type "x" is not known`,
		`{"nftables":[` + table +
			`{"chain":{"family":"ip","table":"t","name":"c","type":"nat","hook":"x","prio":0}}]}`: `hook "x" is not known`,
		`{"nftables":[` + table + `{"chain":{"family":"ip","table":"t","name":"c"}},` +
			`{"chain":{"family":"ip","table":"t","name":"c"}}]}`: "listed twice",
		`{"nftables":[` + table + `{"chain":{"family":"ip","table":"t","name":"c"}},` +
			`{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"jump":{"target":"d"}}]}}]}`: `jumps to "d", which is not listed`,
		`{"nftables":[` + table + `{"chain":{"family":"ip","table":"t","name":"c"}},` +
			`{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"jump":{"target":"c"}}]}}]}`: "a loop",
	} {
		l, err := nftjson.Parse("file", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), says) ||
			!strings.HasPrefix(err.Error(), "file: ") {
			t.Errorf("%s: %+v, %v, want %q", text, l, err, says)
		}
	}
}

func TestDormantTablesAndOtherHooks(t *testing.T) {
	const text = `{"nftables":[
		{"table":{"family":"ip","name":"asleep","flags":"dormant"}},
		{"chain":{"family":"ip","table":"asleep","name":"c","type":"filter","hook":"output","prio":0,"policy":"drop"}},
		{"table":{"family":"netdev","name":"dev"}},
		{"chain":{"family":"netdev","table":"dev","name":"c","type":"filter","hook":"ingress","prio":0,"policy":"drop"}},
		{"table":{"family":"ip","name":"t"}},
		{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"prerouting","prio":-200,"policy":"drop"}}]}`
	l, err := nftjson.Parse("file", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Tables) != 1 || l.Tables[0].Name != "t" ||
		fmt.Sprint(l.Elsewhere) != "[chain netdev dev c at ingress]" ||
		fmt.Sprint(l.Undecided) != "[whether chain ip t c runs before conntrack is not listed]" {
		t.Errorf("%+v", l)
	}
}

// A statement that nft cannot write is null, and one of iptables-nft is xt: both may do anything.
func TestStatementsThatAreNotKnown(t *testing.T) {
	for _, statement := range []string{
		"null", `{"xt":{"type":"match","name":"owner"}}`, `{"xt":null}`,
		`{"drop":null,"accept":null}`, "{}",
		`{"redirect":{"port":80,"flags":"random"}}`, `{"redirect":{"port":0}}`,
		`{"tproxy":{"port":80,"family":"ip"}}`,
		`{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"|":[{"meta":{"key":"mark"}},1]}}}`,
		`{"jump":{}}`,
		`{"mangle":{"key":{"ct":{"key":"zone","dir":"original"}},"value":1}}`,
		`{"log":{"queue-threshold":1}}`, `{"continue":null}`,
		`{"match":{"op":"==","left":{"numgen":{"mode":"inc","mod":2}},"right":0}}`,
	} {
		l, err := nftjson.Parse("file",
			strings.NewReader(`{"nftables":[{"table":{"family":"ip","name":"t"}},`+
				`{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"output","prio":0}},`+
				`{"rule":{"family":"ip","table":"t","chain":"c","expr":[`+statement+`]}}]}`))
		if err != nil {
			t.Errorf("%s: %v", statement, err)
			continue
		}
		actions := l.Tables[0].Chains[0].Rules[0].Actions
		if u, ok := actions[0].(rules.Unknown); len(actions) != 1 || !ok ||
			u.Effect != rules.Anything {
			t.Errorf("%s: %v", statement, actions)
		}
	}
}

// FuzzParse wants no panic, and a ruleset that can be followed.
func FuzzParse(f *testing.F) {
	f.Add(`{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},"right":{"set":["1.1.1.1",{"prefix":{"addr":"2.0.0.0","len":8}}]}}`)
	f.Add(`{"op":"!=","left":{"&":[{"meta":{"key":"mark"}},255]},"right":1}`)
	f.Add(`{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}`)
	f.Add(`{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":{"range":[1,5]}}`)
	f.Fuzz(func(t *testing.T, match string) {
		text := `{"nftables":[{"table":{"family":"inet","name":"t"}},
			{"chain":{"family":"inet","table":"t","name":"c","type":"filter","hook":"output","prio":0,"policy":"accept"}},
			{"rule":{"family":"inet","table":"t","chain":"c","handle":1,"expr":[{"match":` + match +
			`},{"drop":null}]}}]}`
		l, err := nftjson.Parse("file", strings.NewReader(text))
		if err != nil || len(l.Tables) == 0 {
			return
		}
		ruleset := rules.Ruleset{Tables: l.Tables}
		_ = ruleset.String()
		for _, packet := range []string{
			"out tcp 10.244.1.5:40000 > 10.96.0.1:443", "out udp [fd00::5]:1 > [fd00::a]:53",
		} {
			p, err := rules.ParsePacket(packet)
			if err != nil {
				t.Fatal(err)
			}
			diff.Explain(&ruleset, p)
		}
	})
}
