package nftlist_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
)

// chainOf returns a listing with one rule.
func chainOf(rule string) string {
	return "table inet t {\n\tchain c {\n\t\ttype filter hook output priority filter; policy accept;\n\t\t" +
		rule + "\n\t}\n\tchain d {\n\t}\n}\n"
}

// parsed returns the rules of chain c.
func parsed(t *testing.T, text string) []rules.Rule {
	t.Helper()
	l, err := nftlist.Parse("file", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return l.Tables[0].Chains[0].Rules
}

// TestTextOfStatements verifies that statements are read, and that a rule is unknown from the first
// statement that cannot be parsed. The statement before it is unknown too, unless the other one
// begins with a keyword that only begins statements.
func TestTextOfStatements(t *testing.T) {
	for _, tc := range []struct{ rule, want string }{
		{"tcp dport 80 counter packets 5 bytes 6 drop", "tcp dport 80 counter drop"},
		{"tcp dport 8080 dnat to 10.0.0.2:80", "tcp dport 8080 unknown(dnat to 10.0.0.2:80)"},
		{"fib daddr type local jump d", "fib daddr type local jump d"},
		{
			"fib saddr . iif oif missing drop",
			"fib saddr . iif oif missing drop",
		},
		{"ct original ip daddr 10.0.0.1 drop", "unknown(ct original ip daddr 0x0a000001) drop"},
		{"meta skuid 5 redirect to :80 random", "meta skuid 5 unknown(redir)"},
		{"meta skuid 5 redirect to :80-90", "meta skuid 5 unknown(redir)"},
		{"ip daddr 10.0.0.1 mystery drop", "unknown(ip daddr 10.0.0.1 mystery drop)"},
		{"mystery drop", "unknown(mystery drop)"},
		{`tcp dport 21 ct expectation set "x" drop`, "tcp dport 21 unknown(objref) drop"},
		{"meta mark set meta mark | 0x00000001", "meta mark set meta mark & 0xfffffffe | 0x1"},
		{"meta mark set meta mark | ct mark", "unknown(meta mark set meta mark | ct mark)"},
		{
			"ct mark set ct mark & 0x000000ff | 0x00000100 drop",
			"ct mark set ct mark & 0xff ^ 0x100 ct mark & 0x0 == 0x0 drop",
		},
		{"meta mark set mark or 0x1", "unknown(meta mark set mark or 0x1)"},
		{"meta l4proto tcp # xt_owner", "unknown(meta l4proto tcp # xt_owner)"},
		{"meta l4proto tcp xt match string drop", "meta l4proto tcp unknown(xt match string drop)"},
		{"skuid != 1337 return", "unknown(skuid != 1337 return)"},
		{`drop comment "x" accept comment "y"`, `unknown(drop comment "x" accept)`},
		{
			"tcp dport 22 jump {\n\t\t\tip saddr 1.2.3.4 accept\n\t\t\tdrop\n\t\t}",
			"tcp dport 22 unknown(jump { ip saddr 1.2.3.4 accept drop })",
		},
		{
			"tcp dport vmap { 22 : jump d, 23 : drop }",
			"tcp dport 22 jump d; tcp dport 23 drop",
		},
		{"ip saddr . tcp dport { 1.1.1.1 . 80 } drop", "ip saddr 1.1.1.1 tcp dport 80 drop"},
		{"limit rate over 10/second drop", "unknown(limit rate over 10/second burst 5 packets) drop"},
		{`meta time "2024-01-01 00:00:00" drop`, `unknown(meta time "2024-01-01 00:00:00") drop`},
		{`log prefix "x" accept log prefix "y" drop`, `log unknown(accept log prefix "y" drop)`},
		{"jump d counter", "unknown(jump d counter)"},
		// The last word lacks its value.
		{`tcp dport 80 iifname "a" /`, `tcp dport 80 unknown(iifname "a" /)`},
		{"tcp dport 80 counter name", "tcp dport 80 unknown(counter name)"},
		// A text in quotes is not a keyword or the name of a chain.
		{`meta l4proto tcp tcp dport 80 "drop"`, `meta l4proto tcp unknown(tcp dport 80 "drop")`},
		{`tcp dport 80 jump "d"`, `tcp dport 80 unknown(jump "d")`},
		{"tcp dport 80 accept mystery", "tcp dport 80 unknown(accept mystery)"},
		{"continue accept", "continue accept"},
		// nft 1.0.6 lists these numbers for 5 . 80, and for both 4 . 5 and 4 . 6.
		{
			"tcp doff >> 4 . tcp dport { 0 . 1280 } drop",
			"unknown(tcp doff >> 4 . tcp dport { 0 . 1280 }) drop",
		},
		{
			"ip version >> 4 . ip hdrlength { 0 . 0 } drop",
			"unknown(ip version >> 4 . ip hdrlength { 0 . 0 }) drop",
		},
		{`iifname "!=" drop`, `iifname "!=" drop`},
		{`iifname "@s" drop`, `unknown(iifname "@s") drop`},
		{`log prefix "a # b; c } d" level warn drop`, "log drop"},
		{"log prefix \"queue\" group 5 queue-threshold 5 drop", "log drop"},
		{"tcp flags & (fin | syn) == syn drop", "tcp flags & (fin | syn) == syn drop"},
		{"tcp flags ! syn drop", "tcp flags & (syn) == 0x0 drop"},
		// The port may be a value of a map.
		{"meta l4proto tcp tproxy to", "meta l4proto tcp unknown(tproxy to)"},
		{
			"meta l4proto tcp tproxy ip to 127.0.0.1",
			"meta l4proto tcp unknown(tproxy ip to 127.0.0.1)",
		},
		{"meta l4proto tcp tproxy ip6 to :15006", "meta nfproto ipv6 meta l4proto tcp tproxy to :15006"},
	} {
		var found []string
		for _, r := range parsed(t, chainOf(tc.rule)) {
			found = append(found, r.String())
			if r.Line != 4 {
				t.Errorf("%s: line %d, want 4", tc.rule, r.Line)
			}
		}
		if text := strings.Join(found, "; "); text != tc.want {
			t.Errorf("%s\n got %s\nwant %s", tc.rule, text, tc.want)
		}
	}
}

// TestTextOfChangedSets verifies that the elements of a set are unknown if an unknown statement
// names the set, because the statement may change the set.
func TestTextOfChangedSets(t *testing.T) {
	for statement, want := range map[string]string{
		"drop": "ip daddr @s accept",
		"update @s { ip saddr limit rate 1/second } drop":                        "meta nfproto ipv4 unknown(ip daddr @s) accept",
		"tcp dport 22 jump {\n\t\t\tupdate @s { ip saddr }\n\t\t\taccept\n\t\t}": "meta nfproto ipv4 unknown(ip daddr @s) accept",
	} {
		text := "table inet t {\n\tset s {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1 }\n\t}\n\n" +
			"\tchain c {\n\t\tip daddr @s accept\n\t}\n\tchain d {\n\t\t" + statement + "\n\t}\n}\n"
		if found := parsed(t, text); found[0].String() != want {
			t.Errorf("%s: %s, want %s", statement, &found[0], want)
		}
	}
}

// TestJSONOfChangedSets is like TestTextOfChangedSets, for statements that nft does not represent
// as objects, for sets that an old statement changes, and for chains that are not compared.
func TestJSONOfChangedSets(t *testing.T) {
	const unknown = "meta nfproto ipv4 unknown(ip daddr @s) accept"
	for statement, want := range map[string]string{
		`{"drop": null}`: "ip daddr @s accept",
		`"jump {\n\t\tupdate @other { ip saddr }\n\t}"`: "ip daddr @s accept",
		`"jump {\n\t\tupdate @s { ip saddr }\n\t}"`:     unknown,
		`null`:                        unknown,
		`{"a": null, "b": null}`:      unknown,
		`{"meter": {"name": "s"}}`:    unknown,
		`{"novel": {"of": ["@s"]}}`:   unknown,
		`{"novel": {"of": "@other"}}`: "ip daddr @s accept",
	} {
		for _, hook := range []string{"input", "ingress"} {
			text := `{"nftables": [
				{"table": {"family": "inet", "name": "t"}},
				{"set": {"family": "inet", "table": "t", "name": "s", "type": "ipv4_addr", "size": 65535, "elem": ["10.0.0.1"]}},
				{"chain": {"family": "inet", "table": "t", "name": "c"}},
				{"chain": {"family": "inet", "table": "t", "name": "d", "type": "filter", "hook": "` + hook + `", "prio": 0}},
				{"rule": {"family": "inet", "table": "t", "chain": "c", "expr": [
					{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "@s"}}, {"accept": null}]}},
				{"rule": {"family": "inet", "table": "t", "chain": "d", "expr": [` + statement + `]}}
			]}`
			if found := parsed(t, text); found[0].String() != want {
				t.Errorf("%s at %s: %s, want %s", statement, hook, &found[0], want)
			}
		}
	}
}

// TestTextOfSets verifies that values, ranges and prefixes on one or several lines are read as
// elements. A set with other elements is unknown.
func TestTextOfSets(t *testing.T) {
	for _, tc := range []struct{ set, rule, want string }{
		{
			"type ipv4_addr\n\t\tflags interval\n\t\tauto-merge\n\t\tcomment \"x\"\n" +
				"\t\telements = { 10.0.0.0/8,\n\t\t\t     172.16.0.1-172.16.0.9,\n\t\t\t     1.1.1.1 }",
			"ip daddr @s drop", "ip daddr @s drop",
		},
		{
			"typeof tcp dport\n\t\tflags interval\n\t\telements = { 80, 0x1bb, 90-99 }",
			"tcp dport @s drop", "tcp dport { 80, 90-99, 443 } drop",
		},
		{
			"type ifname\n\t\tflags interval\n\t\telements = { \"a\", \"b*\" }", "iifname @s drop",
			`iifname { "a", "b*" } drop`,
		},
		{
			"type ipv4_addr\n\t\tflags timeout\n\t\telements = { 1.1.1.1 timeout 5m expires 4m }",
			"ip daddr @s drop", "ip daddr @s drop",
		},
		{
			"type ipv4_addr\n\t\tflags dynamic\n\t\telements = { 1.1.1.1 }", "ip daddr @s drop",
			"meta nfproto ipv4 ip daddr @s drop",
		},
		{
			"type ipv4_addr\n\t\ttimeout 1h\n\t\telements = { 1.1.1.1 }", "ip daddr @s drop",
			"ip daddr @s drop",
		},
		{
			"type ipv4_addr\n\t\tflags dynamic\n\t\ttimeout 1h\n\t\telements = { 1.1.1.1 }",
			"ip daddr @s drop", "meta nfproto ipv4 unknown(ip daddr @s) drop",
		},
		{
			"type ipv4_addr\n\t\ttimeout 1h\n\t\telements = { 1.1.1.1 expires 9m }",
			"ip daddr @s update @s { ip daddr }", "meta nfproto ipv4 ip daddr @s unknown(dynset @s)",
		},
		{
			"type ipv4_addr\n\t\ttimeout 1h\n\t\telements = { 1.1.1.1 }",
			"ip daddr @s update @s { ip daddr }",
			"meta nfproto ipv4 unknown(ip daddr @s) unknown(dynset @s)",
		},
		{
			"type ipv4_addr\n\t\telements = { 1.1.1.1 limit rate 1/second }", "ip daddr @s drop",
			"meta nfproto ipv4 unknown(ip daddr @s) drop",
		},
		{
			"type ipv4_addr\n\t\tcounter\n\t\telements = { 1.1.1.1 counter packets 1 bytes 2 comment \"x\" }",
			"ip daddr @s drop", "ip daddr @s drop",
		},
		{
			"type ipv4_addr\n\t\tsize 9\t# count 1\n\t\telements = { 1.1.1.1 }", "ip daddr @s drop",
			"ip daddr @s drop",
		},
		{"type ipv4_addr", "ip daddr @other drop", "unknown(ip daddr @other) drop"},
		// nft -t omits all elements.
		{"type ipv4_addr", "ip daddr @s drop", "meta nfproto ipv4 unknown(ip daddr @s) drop"},
		{
			"type ipv4_addr\n\t\tflags timeout", "ip daddr @s drop",
			"meta nfproto ipv4 unknown(ip daddr @s) drop",
		},
		{
			"type ipv4_addr\n\t\tflags dynamic", "ip daddr @s drop",
			"meta nfproto ipv4 ip daddr @s drop",
		},
		{
			"type ipv4_addr\n\t}\n\tset other {\n\t\ttype mark\n\t\telements = { 1 }",
			"ip daddr @s accept", "meta nfproto ipv4 { } accept",
		},
	} {
		text := "table inet t {\n\tset s {\n\t\t" + tc.set + "\n\t}\n\n\tchain c {\n\t\t" +
			tc.rule + "\n\t}\n}\n"
		if found := parsed(t, text); found[0].String() != tc.want {
			t.Errorf("%s\n%s\n got %s\nwant %s", tc.set, tc.rule, &found[0], tc.want)
		}
	}
}

func TestTextOfTablesAndChains(t *testing.T) {
	const text = `# Warning: table ip x is managed by someone
table ip asleep { # handle 1
	flags dormant

	chain c {
		type filter hook output priority filter; policy drop;
	}
}
table netdev dev {
	chain c {
		type filter hook ingress devices = { "lo", "priority" } priority filter; policy drop;
	}
}
table inet t { # handle 7
	comment "of { nobody"
	counter named {
		packets 0 bytes 0
	}

	map m {
		type inet_service : verdict
		elements = { 22 : accept }
	}

	chain in { # handle 3
		comment "with a comment"
		type filter hook prerouting priority dstnat - 5; policy drop;
		tcp dport 80 accept comment "web" # handle 12
	}

	chain out {
		type nat hook output priority -100; policy accept;
		ip6 daddr fd00::/8 counter goto target
	}

	chain target {
	}
}
`
	l, err := nftlist.Parse("file", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := `table inet t {
	chain in {
		type filter hook prerouting priority -105; policy drop;
		tcp dport 80 accept comment "web"
	}

	chain out {
		type nat hook output priority -100; policy accept;
		ip6 daddr fd00::/8 counter goto target
	}

	chain target {
	}
}
`
	ruleset := rules.Ruleset{Tables: l.Tables}
	if diff := cmp.Diff(want, ruleset.String()); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
	if fmt.Sprint(l.UnmodeledChains) != "[chain netdev dev c at ingress]" || len(l.Undecided) > 0 {
		t.Errorf("unmodeled chains %q, undecided %q; want only the chain of table dev to be unmodeled",
			l.UnmodeledChains, l.Undecided)
	}
	first := l.Tables[0].Chains[0].Rules[0]
	if first.Handle != 12 || first.Comment != "web" || first.Line != 28 {
		t.Errorf("handle %d, comment %q, line %d; want 12, web and 28", first.Handle, first.Comment,
			first.Line)
	}
}

// TestTextOfIPTablesNFT verifies that the listing of an iptables-nft table is undecided, because
// the text may be incomplete.
func TestTextOfIPTablesNFT(t *testing.T) {
	text := strings.NewReplacer("inet t", "ip nat", "chain c", "chain OUTPUT").Replace(chainOf("drop"))
	l, err := nftlist.Parse("file", strings.NewReader(text))
	want := "[nft may not list everything that iptables-nft puts into table ip nat: compare the output of iptables-save]"
	if err != nil || fmt.Sprint(l.Undecided) != want {
		t.Errorf("listing %v, error %v, want undecided %s", l, err, want)
	}
}

func TestTextWithErrors(t *testing.T) {
	const wantTable = "want a table, such as table inet nat {, in text that nft list ruleset prints"
	for _, tc := range []struct{ text, want string }{
		{"", "file: the text is empty: nft list ruleset prints nothing only if there are no tables"},
		{" \n\n", "file: the text is empty: nft list ruleset prints nothing only if there are no tables"},
		{"*nat\nCOMMIT\n", `file:1:1: "*nat": ` + wantTable +
			"; this looks like the output of iptables-save"},
		{"\nflush ruleset\n", `file:2:1: "flush": ` + wantTable},
		{"table ip a {\n}\nadd rule ip a b drop\n", `file:3:1: "add": ` + wantTable},
		{"table x {\n}\n", `file:1:1: "table": ` + wantTable},
		{"}\n", `file:1:1: "}": ` + wantTable},
		{"table ip a {\n}\n{\n", `file:3:1: "{": ` + wantTable},
		{"table ip a {\n}{\ntable ip b {\n}\n", `file:2:2: "{": ` + wantTable},
		{"table ip t {\n", "file:2:1: the line ends: want } before the end of the text"},
		{"table ip t {\n\tchain c {\n\t\tdrop\n", "want } before the end of the text"},
		{"table ip t {\n\tset s {\n", "want } before the end of the text"},
		{"table ip t {\n\tmap s {\n", "want } before the end of the text"},
		{"table ip t {\n\tchain c {\n\t\ttcp dport { 80\n", "want } before the end of the text"},
		{
			"table ip t {\n\trule drop\n}\n",
			`file:2:2: "rule": want a chain, a set or another object of a table`,
		},
		{
			"table ip t {\n\t{\n\t}\n}\n",
			`file:2:2: "{": want a chain, a set or another object of a table`,
		},
		{
			"table ip t {\n\tset s {\n\t\telements 5\n\t}\n}\n",
			`file:3:3: "elements": want elements = { ELEMENT, ... }`,
		},
		{
			strings.Replace(chainOf("drop"), "priority filter", "priority soon", 1),
			`file:3:36: "soon": want a priority, such as -100, mangle or dstnat - 10`,
		},
		{
			strings.Replace(chainOf("drop"), "priority filter", "priority", 1),
			`file:3:3: "type": want type TYPE hook HOOK priority PRIORITY`,
		},
		{
			strings.Replace(chainOf("drop"), "output", "x", 1),
			`file: chain inet t c: hook "x" is not known (prerouting, input, forward, output, postrouting, ingress or egress)`,
		},
		{
			strings.Replace(chainOf("drop"), "accept", "x", 1),
			`file: chain inet t c: policy "x" is not known (accept or drop)`,
		},
		{chainOf("jump e"), `file: chain inet t c jumps to "e", which is not listed`},
		{chainOf("drop") + chainOf("drop"), "file: table inet t is listed twice"},
		{
			strings.Replace(chainOf("drop"), "chain d", "chain c", 1),
			"file: chain inet t c: it is listed twice",
		},
	} {
		l, err := nftlist.Parse("file", strings.NewReader(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: listing %+v\n got error %v\nwant %s", tc.text, l, err, tc.want)
		}
		if e := (*save.SyntaxError)(nil); strings.Contains(tc.want, ": want ") && !errors.As(err, &e) {
			t.Errorf("%q: error of type %T, want a syntax error", tc.text, err)
		}
	}
}

// TestTableFlagsThatAreUnknown covers nft 1.0.6, which prints the name of a table as its flags in
// JSON.
func TestTableFlagsThatAreUnknown(t *testing.T) {
	l, err := nftlist.Parse("file", strings.NewReader(
		`{"nftables":[{"table":{"family":"ip","name":"a","flags":"a"}}]}`))
	want := `[the listing does not show whether table ip a is dormant: the flag "a" is unknown]`
	if err != nil || fmt.Sprint(l.Undecided) != want {
		t.Errorf("listing %+v, error %v, want undecided %s", l, err, want)
	}
}

// TestValuesThatNFTDoesNotList verifies that comparisons that nft never lists are unknown. They
// have addresses of the other family, octal numbers, which nft reads from scripts, or operators
// that are not evaluated from left to right.
func TestValuesThatNFTDoesNotList(t *testing.T) {
	for _, match := range []string{
		"ip saddr fd00::1", "ip6 daddr 10.0.0.1", "ip saddr != fd00::1", "ip saddr { fd00::1 }",
		"ip saddr & fd00::1 == 0.0.0.0", "ip daddr fd00::1-fd00::2", "meta mark 010",
		"tcp dport 0100", "tcp dport { 010-020, 030 }", "meta mark & 017 == 1",
		"meta mark | 0x10 & 0xf == 0x10", "meta mark & 0xff << 4 == 0x10",
	} {
		text := "table inet t {\n\tchain c {\n\t\ttype filter hook output priority 0;\n\t\t" + match +
			" drop\n\t}\n}\n"
		l, err := nftlist.Parse("file", strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", match, err)
			continue
		}
		rule := l.Tables[0].Chains[0].Rules[0]
		var first any
		if len(rule.Matches) > 0 {
			first = rule.Matches[0]
		} else if len(rule.Actions) > 0 {
			first = rule.Actions[0]
		}
		if _, ok := first.(rules.Unknown); !ok || len(rule.Matches) > 1 {
			t.Errorf("%s: %v, want an unknown match or action first", match, rule)
		}
	}
}
