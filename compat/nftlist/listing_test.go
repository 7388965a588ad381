package nftlist_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// knownRules are rules that the listing states completely.
var knownRules = []string{
	"ip dscp set cs1",
	"ip dscp set af23 ip ttl set 5 meta mark set 1",
	"ip ecn set ce",
	"ip6 dscp set ef",
	"ip6 dscp set 1",
	"ip6 ecn set ect0",
	"ip6 hoplimit set 255",
	"tcp option maxseg size set 1200",
	"tcp flags syn tcp option maxseg size set 1000 accept",
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
	"tcp flags & (syn | ack) == syn drop",
	"tcp flags != syn / fin,syn,rst,ack drop",
	"counter tcp dport 80 counter drop",
	`log prefix "x" tcp dport 80 drop`,
	"meta mark set 7",
	"meta mark set ct mark drop",
	"ct mark set meta mark",
	"ct mark set 5",
	"meta mark set meta mark or 1 drop",
	"meta mark set meta mark and 0xff xor 0x3",
	"meta mark set ct mark and 0xff or 0x100 drop",
	"ct mark set ct mark and 0xfffff000 or 0x111",
	"ct mark set ct mark and 0xff drop",
	"ct mark set meta mark and 0xff",
	"meta mark set 7 tcp dport 80 drop",
	"tcp dport 80 jump target",
	"tcp dport 80 goto target",
	"tcp dport 80 return",
	"iif lo drop",
	"ip6 nexthdr tcp drop",
	"ip daddr . tcp dport { 1.1.1.1 . 80 } drop",
	"tcp dport vmap { 22 : drop }",
	"limit rate 1/second drop",
	"meta l4proto tcp ct state new ip saddr 10.0.0.1 tcp dport 80 limit rate 1/second drop",
	"meta l4proto udp ct state new ip saddr 10.0.0.1 udp dport 80 numgen inc mod 3 0 drop",
	"numgen inc mod 2 0 drop",
	"ip daddr @changing drop",
	"add @changing { ip daddr } drop",
	"ct direction reply drop",
	"ct status dnat drop",
	"ct state != established,related drop",
	"meta mark > 7 drop",
	"tcp flags syn drop",
	"tcp flags & (syn | ack) != { syn, ack } drop",
	"ct state vmap { new : drop }",
	"ip daddr & 255.0.0.255 == 10.0.0.1 drop",
	"fib daddr type local drop",
	"reject",
	"ct original ip daddr 10.0.0.1 drop",
	"meta mark set meta mark << 8",
	"ct mark set meta mark >> 4 tcp dport 5 drop",
	"ip dscp cs1 drop",
	"ip dscp cs1 meta mark set 5 ip dscp cs1 drop",
	"limit rate 1/second ip dscp cs1 drop",
	"udp length 5-8 drop",
	"tcp window < 100 drop",
	"meta nfproto ipv4 tcp option maxseg exists drop",
	"meta nfproto ipv4 tcp option maxseg size > 500 drop",
	"udp dport 4789 @ih,32,24 0x1001 meta mark set 5",
	"ct label 5 drop",
	"ct label set 5",
	"ct label set 5 ct label 5 drop",
	"ct helper \"ftp\" drop",
	"ct packets > 5 drop",
	"ct event set new",
	"meta random < 5 drop",
	"rt classid 5 drop",
	"meta priority set 0",
}

// knownAtOutput are rules like knownRules that the kernel does not accept at prerouting.
var knownAtOutput = []string{
	"tcp flags syn tcp option maxseg size set rt mtu",
	"tcp option maxseg size set rt mtu tcp dport 5 drop",
}

// unknownRules are rules that the listing states incompletely, or that the package does not
// support.
var unknownRules = []string{
	`oifname { "a", "b*", "c" } drop`,
	"tcp dport 22 jump { ip saddr 10.0.0.1 drop; accept; }",
	"meta hour 5 drop",
	"ip saddr set 10.0.0.1",
	`limit name "slow" drop`,
	"limit rate 1/second meta hour 5 drop",
	"tcp dport 80 limit rate 1/second counter meta hour 5 drop",
	"meta l4proto icmp limit rate 1/second drop",
	"tcp doff . tcp dport { 5 . 80 } drop",
	"ip version . ip hdrlength { 4 . 5 } drop",
}

// listedAlike contains lists of rules that nft lists in the same way, although they match different
// packets.
var listedAlike = [][]string{
	{
		"ct protocol tcp drop", "meta nfproto ipv4 ct protocol tcp drop",
		"meta nfproto ipv6 ct protocol tcp drop",
	},
	{
		"tcp option maxseg exists drop", "ip protocol tcp tcp option maxseg exists drop",
		"ip6 nexthdr tcp tcp option maxseg exists drop",
		"ct protocol tcp tcp option maxseg exists drop",
	},
	{
		"meta nfproto ipv6 tcp option maxseg exists drop",
		"meta nfproto ipv6 meta l4proto tcp tcp option maxseg exists drop",
	},
	{
		"ip6 daddr ::1 tcp option maxseg exists drop",
		"ip6 daddr ::1 ip6 nexthdr tcp tcp option maxseg exists drop",
	},
	{
		"tcp option maxseg size 5 drop", "ip protocol tcp tcp option maxseg size 5 drop",
		"meta l4proto tcp tcp option maxseg size 5 drop",
	},
	{
		"meta nfproto ipv4 tcp option maxseg missing drop",
		"meta nfproto ipv4 meta l4proto tcp tcp option maxseg missing drop",
		"meta nfproto ipv4 meta l4proto udp tcp option maxseg missing drop",
	},
	{"meta l4proto icmp drop", "meta nfproto ipv4 meta l4proto icmp drop"},
}

// TestRulesThatAreListedAlikeAreUndecided verifies that the comparison of a rule with its listing
// is undecided if nft lists another rule in the same way.
func TestRulesThatAreListedAlikeAreUndecided(t *testing.T) {
	ns := newNamespace(t)
	for _, group := range listedAlike {
		listing := ""
		for _, rule := range group {
			ns.load(t, fmt.Sprintf(ruleset, "output", -150, rule))
			text, err := ns.run(t, "", ns.nft, "list", "ruleset")
			if err != nil {
				t.Fatal(err)
			}
			if listing == "" {
				listing = text
			}
			if text != listing {
				t.Errorf("%s and %s are not listed alike:\n%s\n%s", group[0], rule, listing, text)
			}
			for form, verdict := range ns.compare(t, mainForms...) {
				if verdict != diff.Undecidable {
					t.Errorf("%s, nft %s: %v, want %v", rule, form, verdict, diff.Undecidable)
				}
			}
		}
	}
}

const ruleset = `table inet t {
	set fixed { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 172.16.0.1-172.16.0.9 }; }
	limit slow { rate 5/minute; }
	set changing { type ipv4_addr; flags dynamic,timeout; timeout 1h; }
	chain target { meta mark set 9; }
	chain out { type filter hook %s priority %d; policy accept; %s; }
}`

// TestListingEqualsTheKernelsRules compares listings of nft with the rules of the kernel.
func TestListingEqualsTheKernelsRules(t *testing.T) {
	ns := newNamespace(t)
	check := func(hook, rule string, want diff.Verdict, forms ...[]string) {
		ns.load(t, fmt.Sprintf(ruleset, hook, -150, rule))
		for form, verdict := range ns.compare(t, forms...) {
			if verdict != want {
				t.Errorf("%s at %s, nft %s: %v, want %v", rule, hook, form, verdict, want)
			}
		}
	}
	for _, rule := range knownRules {
		check("output", rule, diff.Equivalent, mainForms[:1]...)
	}
	for _, rule := range rulestest.Sample(knownRules, os.Getenv) {
		check("output", rule, diff.Equivalent, mainForms[1:]...)
		check("prerouting", rule, diff.Equivalent, mainForms[:1]...)
	}
	for _, rule := range rulestest.Sample(knownAtOutput, os.Getenv) {
		check("output", rule, diff.Equivalent, mainForms...)
	}
	for _, rule := range rulestest.Sample(unknownRules, os.Getenv) {
		check("output", rule, diff.Undecidable, mainForms[:2]...)
	}
}

// TestListingOfManyRules compares listings of all known rules, in several orders, with the rules of
// the kernel.
func TestListingOfManyRules(t *testing.T) {
	ns := newNamespace(t)
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 0))
		list := slices.Clone(knownRules)
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		hook := []string{"output", "prerouting"}[seed%2]
		ns.load(t, fmt.Sprintf(ruleset, hook, -150, strings.Join(list, "\n")))
		for form, verdict := range ns.compare(t, everyForm...) {
			if verdict != diff.Equivalent {
				t.Errorf("seed %d, nft %s: %v, want equivalent", seed, form, verdict)
			}
		}
	}
}

// TestListingWithALoopThatNoPacketReaches verifies that a listing may contain a loop of jumps that
// the kernel accepts: the kernel does not check the jumps of chains that no base chain reaches.
func TestListingWithALoopThatNoPacketReaches(t *testing.T) {
	ns := newNamespace(t)
	ns.load(t, "table ip t { chain loop { tcp dport 80 jump loop; }; "+
		"chain out { type filter hook output priority 0; tcp dport 80 drop; }; }")
	for form, verdict := range ns.compare(t, mainForms...) {
		if verdict != diff.Equivalent {
			t.Errorf("nft %s: %v, want equivalent", form, verdict)
		}
	}
}

// TestListingWithNestedJumps verifies that a listing with the maximum number of nested jumps is
// read, and that both the kernel and Parse reject one more.
func TestListingWithNestedJumps(t *testing.T) {
	ns := newNamespace(t)
	const maximum = 15
	for _, verb := range []string{"jump", "goto"} {
		for _, base := range []string{"a", "z"} { // the base chain is before or after the others
			text := func(jumps int) string {
				text := fmt.Sprintf("table ip t {\n\tchain c%02d {\n\t}\n", jumps)
				for i := jumps - 1; i > 0; i-- {
					text += fmt.Sprintf("\tchain c%02d {\n\t\t%s c%02d\n\t}\n", i, verb, i+1)
				}
				return text + fmt.Sprintf("\tchain %s {\n\t\ttype filter hook output priority 0; "+
					"policy accept;\n\t\t%s c01\n\t}\n}\n", base, verb)
			}
			ns.load(t, text(maximum))
			for form, verdict := range ns.compare(t, mainForms...) {
				if verdict != diff.Equivalent {
					t.Errorf("%s, nft %s: %v, want equivalent", verb, form, verdict)
				}
			}
			tooMany := text(maximum + 1)
			if _, err := ns.run(t, tooMany, ns.nft, "-f", "-"); err == nil ||
				!strings.Contains(err.Error(), "Too many links") {
				t.Errorf("%d nested jumps with %s: the kernel returns %v, want too many links", maximum+1,
					verb, err)
			}
			if _, err := nftlist.Parse("file", strings.NewReader(tooMany)); err == nil ||
				!strings.Contains(err.Error(), "more than 15 jumps are nested") &&
					!strings.Contains(err.Error(), "or more than 15 are nested") {
				t.Errorf("%d nested jumps with %s: Parse returns %v, want too many jumps", maximum+1,
					verb, err)
			}
		}
	}
}

func TestJSONThatIsNotAListing(t *testing.T) {
	const table = `{"table":{"family":"ip","name":"t"}},`
	for text, message := range map[string]string{
		`{"nftables": 5}`: `field "nftables" is number: want the output of nft -j list ruleset`,
		`{"apiVersion": "v1"}`: `there is no list "nftables": want the output of nft -j list ruleset; ` +
			"this looks like the output of kubectl with -o json",
		`{"nftables":[{"chain":{"prio":` + strings.Repeat("9", 1000) +
			`}}]}`: `object 1, chain: field "prio" is number ` + strings.Repeat("9", 33) + "...",
		"{}": `there is no list "nftables"`,
		`{"nftables":[{"metainfo":{"json_schema_version":2}}]}`:                                  "object 1, metainfo: version 2 of the format: want 1",
		`{"nftables":[{"set":{"family":"ip","table":"t","name":"s","elem":5}}]}`:                 `object 1, set: ip t s: field "elem" is number: want a list of elements`,
		`{"nftables":[{"table":[]}]}`:                                                            "object 1, table: ",
		`{"nftables":[{"element":{}}]}`:                                                          "elements outside their set",
		`{"nftables":[{"add":{"table":{}}}]}`:                                                    "object 1, add: a command",
		`{"nftables":[{"rule":{}}]}`:                                                             `object 1, rule: there is no list "expr"`,
		`{"nftables":[{"chain":{"family":"ip","table":"t","name":"c"}}]}`:                        "chain ip t c: its table is not listed",
		`{"nftables":[` + table + `{"rule":{"family":"ip","table":"t","chain":"c","expr":[]}}]}`: "chain ip t c has rules, but it is not listed",
		`{"nftables":[` + table + table[:len(table)-1] + `]}`:                                    "table ip t is listed twice",
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
		`{"nftables":[` + table +
			`{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"output","prio":0}},` +
			`{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"jump":{"target":"c"}}]}}]}`: "a loop",
	} {
		l, err := nftlist.Parse("file", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), message) ||
			!strings.HasPrefix(err.Error(), "file: ") {
			t.Errorf("%s: listing %+v, error %v, want an error with %q", text, l, err, message)
		}
	}
}

func TestJSONErrorsHaveALineAndColumn(t *testing.T) {
	const want = ": want the output of nft -j list ruleset, which is JSON: "
	for text, message := range map[string]string{
		`{"nftables":`: "file:1:13: the line ends" + want + "unexpected end of JSON input",
		"{\n \"nftables\": [nothing, 1]}": `file:2:16: "othing"` + want +
			"invalid character 'o' in literal null (expecting 'u')",
		"{\"a\":1}\nx": `file:2:1: "x"` + want + "invalid character 'x' after top-level value",
	} {
		_, err := nftlist.Parse("file", strings.NewReader(text))
		if e := (*save.SyntaxError)(nil); err == nil || err.Error() != message || !errors.As(err, &e) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, message)
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
	l, err := nftlist.Parse("file", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Tables) != 1 || l.Tables[0].Name != "t" ||
		fmt.Sprint(l.UnmodeledChains) != "[chain netdev dev c at ingress]" ||
		fmt.Sprint(l.Undecided) != "[the listing does not show whether chain ip t c runs before conntrack]" {
		t.Errorf("%+v, want only table t, an unmodeled chain, and an undecided order", l)
	}
}

// TestOrderOfChainsIsUndecided verifies that the order of two chains at the same position is
// undecided at each evaluated hook. At postrouting conntrack does not have the priority -200, and
// the order of a chain and conntrack is known.
func TestOrderOfChainsIsUndecided(t *testing.T) {
	const tables = `table ip t {
		chain a { type %[1]s hook %[2]s priority %[3]d; meta mark set 0x1; }
		chain b { type %[1]s hook %[2]s priority %[3]d; meta mark set 0x2; }
	}`
	const undecided = "the listing does not show which of the chains ip t a and ip t b runs first"
	for _, c := range []struct {
		chainType, hook string
		priority        int
		want            []string
	}{
		{"filter", "prerouting", 0, []string{undecided}},
		{"nat", "output", -100, []string{undecided}},
		{"filter", "postrouting", 0, []string{undecided}},
		{"filter", "postrouting", -200, []string{undecided}},
		{"nat", "postrouting", 100, []string{undecided}},
		{"filter", "input", 0, nil},
	} {
		text := fmt.Sprintf(tables, c.chainType, c.hook, c.priority)
		l, err := nftlist.Parse("file", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(l.Undecided, c.want) {
			t.Errorf("%s chains at %s with priority %d: undecided %q, want %q", c.chainType, c.hook,
				c.priority, l.Undecided, c.want)
		}
	}
}

// TestOrderOfAnIdleNATChainIsUndecided verifies that the order of a NAT chain without rules and
// another chain at the position of NAT is undecided, unless the other chain has no effect.
func TestOrderOfAnIdleNATChainIsUndecided(t *testing.T) {
	const undecided = "the listing does not show which of the chains ip t a and ip t b runs first"
	for _, c := range []struct {
		first, second string
		want          []string
	}{
		{
			"type nat hook output priority -90;", "type filter hook output priority -100; drop;",
			[]string{undecided},
		},
		{
			"type filter hook output priority -100; drop;", "type nat hook output priority -90;",
			[]string{undecided},
		},
		{"type nat hook output priority -100;", "type nat hook output priority -100; drop;", nil},
		{"type nat hook output priority -100;", "type filter hook output priority -100;", nil},
		{"type nat hook output priority -100;", "type filter hook output priority -101; drop;", nil},
	} {
		text := fmt.Sprintf("table ip t {\n\tchain a { %s }\n\tchain b { %s }\n}", c.first, c.second)
		l, err := nftlist.Parse("file", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(l.Undecided, c.want) {
			t.Errorf("%s: undecided %q, want %q", text, l.Undecided, c.want)
		}
	}
}

// nft prints null for a statement that it cannot express, and xt for an extension of xtables.
func TestUnsupportedStatementsMayHaveAnyEffect(t *testing.T) {
	for _, statement := range []string{
		"null", `{"xt":{"type":"match","name":"owner"}}`, `{"xt":null}`,
		`{"drop":null,"accept":null}`, "{}",
		`{"redirect":{"port":80,"flags":"random"}}`, `{"redirect":{"port":0}}`,
		`{"tproxy":{"port":80,"family":"ip6"}}`,
		`{"mangle":{"key":{"meta":{"key":"mark"}},"value":{"|":[{"meta":{"key":"mark"}},"a"]}}}`,
		`{"jump":{}}`,
		`{"mangle":{"key":{"ct":{"key":"zone","dir":"original"}},"value":1}}`,
		`{"log":{"other":1}}`, `{"numgen":null}`,
		`{"match":{"op":"==","left":{"numgen":{"mode":"other","mod":2}},"right":0}}`,
	} {
		l, err := nftlist.Parse("file",
			strings.NewReader(`{"nftables":[{"table":{"family":"ip","name":"t"}},`+
				`{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"output","prio":0}},`+
				`{"rule":{"family":"ip","table":"t","chain":"c","expr":[`+statement+`]}}]}`))
		if err != nil {
			t.Errorf("%s: %v", statement, err)
			continue
		}
		actions := l.Tables[0].Chains[0].Rules[0].Actions
		if u, ok := actions[0].(rules.Unknown); len(actions) != 1 || !ok ||
			u.Effect != rules.AnyEffect {
			t.Errorf("%s: actions %v, want one that may have any effect", statement, actions)
		}
	}
}

// FuzzParse verifies that there is no panic, and that packets can be followed through the ruleset.
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
		l, err := nftlist.Parse("file", strings.NewReader(text))
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
