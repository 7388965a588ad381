package nft

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRulesOfProgramsAreDecided checks that no packet is undecided for rules that programs have
// added to nftables. An unknown expression must not affect the comparison of these rules with
// themselves, or with the same rules and an additional chain that drops packets to one port first.
func TestRulesOfProgramsAreDecided(t *testing.T) {
	for _, file := range programFiles(t, filepath.Join("testdata", "programs", "*.nft")) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ns := netnstest.New(t)
			load(t, ns, contents(t, file))
			rs, err := ReadAll(ns)
			if err != nil {
				t.Fatal(err)
			}
			checkDecided(t, diff.Side{Ruleset: rs}, diff.Side{Ruleset: rs}, diff.Equivalent)
			load(t, ns, `table inet other {
				chain in { type filter hook prerouting priority -290; tcp dport 4711 drop; }
			}`)
			other, err := ReadAll(ns)
			if err != nil {
				t.Fatal(err)
			}
			checkDecided(t, diff.Side{Ruleset: rs}, diff.Side{Ruleset: other}, diff.Different)
			for _, text := range []string{
				"in tcp 192.0.2.10:40000 > 10.96.0.14:80",
				"out tcp 10.244.1.5:40000 > 10.96.0.14:80",
				"in sctp 192.0.2.10:40000 > 10.96.0.10:9999",
				"in tcp [2001:db8::1]:40000 > [fd00:10:96::e]:80",
				"in udp 192.0.2.10:40000 > 10.244.1.5:8080",
			} {
				p, err := rules.ParsePacket(text + " src-type unicast dst-type unicast")
				if err != nil {
					t.Fatal(err)
				}
				if p.Hook == rules.Prerouting {
					p.InAddress = netip.MustParseAddr("10.244.1.5")
					if p.Family() == rules.IPv6 {
						p.InAddress = netip.MustParseAddr("fd00::5")
					}
				}
				if outcome := diff.Explain(&rs, p).Outcome; outcome.Undecided != "" ||
					outcome.UnknownMarks != "" {
					t.Errorf("%s: %s, want a decided outcome and known marks", p, outcome)
				}
			}
		})
	}
}

// checkDecided checks that the comparison of the sides has the verdict, and that no packet is
// undecided.
func checkDecided(t *testing.T, left, right diff.Side, want diff.Verdict) {
	t.Helper()
	r := diff.Decide(left, right, diff.Options{MaxClasses: 3})
	if got := r.StrictVerdict(); got != want {
		t.Errorf("verdict %s, want %s", got, want)
	}
	for _, u := range r.Undecided {
		t.Errorf("undecided because of %s, for example %s; want no undecided packets", u.Text,
			u.Witness)
	}
}

// TestMapsOfMarksAndMaskedSetsAreDecided compares rules that use maps of marks, sets or masked
// fields with rules that use none of these maps and sets.
func TestMapsOfMarksAndMaskedSetsAreDecided(t *testing.T) {
	side := func(list string) diff.Side {
		ns := netnstest.New(t)
		load(t, ns, "table inet t {\nchain c {\ntype filter hook prerouting priority -150;\n"+list+"\n}\n}")
		rs, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{Ruleset: rs}
	}
	for _, tc := range []struct {
		rule, equal, other string
	}{
		{
			"meta mark set tcp dport map { 80 : 1, 90 : 2 }",
			"tcp dport 90 meta mark set 2\ntcp dport 80 meta mark set 1",
			"tcp dport { 80, 90 } meta mark set 1",
		},
		{
			"meta mark 5 counter ct mark set ip saddr map { 10.0.0.0/8 : 1, 11.0.0.0/8 : 2 }",
			"meta mark 5 ip saddr 11.0.0.0/8 ct mark set 2\nmeta mark 5 ip saddr 10.0.0.0/8 ct mark set 1",
			"ip saddr 11.0.0.0/8 ct mark set 2\nip saddr 10.0.0.0/8 ct mark set 1",
		},
		{
			"ct mark set meta mark map { 1 : 2, 2 : 1 }",
			"meta mark 2 ct mark set 1\nmeta mark 1 ct mark set 2",
			"meta mark 1 ct mark set 2",
		},
		{
			"tcp flags != { syn, ack } drop", "tcp flags != syn tcp flags != ack drop",
			"tcp flags & (syn|ack) == 0 drop",
		},
		{
			"tcp flags & (syn|ack|fin) { syn, ack } drop",
			"tcp flags & (syn|ack|fin) == syn drop\ntcp flags & (syn|ack|fin) == ack drop",
			"tcp flags & (syn|ack) { syn, ack } drop",
		},
		{
			"ct mark & 0xf != { 1, 2 } drop", "ct mark & 0xf != 1 ct mark & 0xf != 2 drop",
			"ct mark & 0xf { 1, 2 } accept\ndrop", // also packets without a connection
		},
		{
			"ct status & (dnat|snat) != dnat drop",
			"ct status & (dnat|snat) == 0 drop\nct status snat drop",
			"ct status & (dnat|snat) == dnat accept\ndrop",
		},
		{
			"ct state & (new|established) != new drop", "ct state != new drop",
			"ct state established drop",
		},
		{
			"tcp dport & 0xffdf { 80, 65 } drop",
			"tcp dport & 0xffdf == 80 drop\ntcp dport & 0xffdf == 65 drop",
			"tcp dport & 0xffdf == 80 drop",
		},
		{"ct state != established,related drop", "drop", "ct state != established drop"},
		{"ct state == established|related drop", "", "ct state established drop"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			checkDecided(t, side(tc.rule), side(tc.equal), diff.Equivalent)
			checkDecided(t, side(tc.rule), side(tc.other), diff.Different)
		})
	}
}

// TestStatesThatRulesChange compares rules with conditions on states that rules change: the
// elements of sets, labels of connections, and priorities of packets.
func TestStatesThatRulesChange(t *testing.T) {
	const (
		sets = "set s { type ipv4_addr; flags dynamic; }\nset u { type ipv4_addr; flags dynamic; elements = { 10.0.0.1 }; }\n" +
			"set v { type ipv4_addr; flags dynamic; elements = { 10.0.0.2 }; }\n" +
			"set l { type ipv4_addr; flags dynamic; elements = { 10.0.0.1 limit rate over 1/second }; }\n"
		read, add  = "ip saddr @s drop\n", "add @s { ip saddr }\n"
		addLimited = "add @s { ip saddr limit rate 1/second }\n"
	)
	for _, tc := range []struct {
		name, left, right string
		want              diff.Verdict
	}{
		{"a set that no rule changes", read, read, diff.Equivalent},
		{
			"a negated condition with the opposite verdict", read,
			"ip saddr != @s accept\nmeta nfproto ipv4 drop", diff.Equivalent,
		},
		{"the destination instead of the source", read, strings.ReplaceAll(read, "saddr", "daddr"), diff.Different},
		{"a set that both sides add to", add + read, add + read, diff.Equivalent},
		{"a set that one side adds to", add + read, read, diff.Undecidable},
		{"additions for different packets", "tcp dport 80 " + add + read, add + read, diff.Undecidable},
		{"additions of different keys", "add @s { ip daddr }\n" + read, add + read, diff.Undecidable},
		{
			// Each lookup that finds an element evaluates the element's limit (nft_lookup_eval).
			"additions with a limit", read + addLimited, read + read + addLimited, diff.Undecidable,
		},
		{
			"elements with a limit", "ip saddr @l drop", "ip saddr @l drop\nip saddr @l drop",
			diff.Undecidable,
		},
		{"additions with a limit to a set that no rule reads", addLimited, addLimited, diff.Equivalent},
		{
			"labels of a connection", "ct label set 1\nct label 1 drop", "ct label 1 drop",
			diff.Undecidable,
		},
		{
			"a priority", "meta priority set 1:1\nmeta priority 1:1 drop", "meta priority 1:1 drop",
			diff.Undecidable,
		},
		{"a priority that no rule reads", "meta priority set 1:1\n", "", diff.Equivalent},
		{
			// The two limits of the right side count other packets than the limit of the left side.
			"a limit before a verdict map", "limit rate 1/second tcp dport vmap { 80 : accept, 90 : drop }",
			"limit rate 1/second tcp dport 80 accept\nlimit rate 1/second tcp dport 90 drop",
			diff.Different,
		},
		{
			"equal limits before equal verdict maps",
			"limit rate 1/second tcp dport vmap { 80 : accept, 90 : drop }",
			"limit rate 1/second tcp dport vmap { 90 : drop, 80 : accept }", diff.Equivalent,
		},
		{
			"a limit before a verdict map with one verdict",
			"limit rate 1/second tcp dport vmap { 80 : drop, 90 : drop }",
			"limit rate 1/second tcp dport { 80, 90 } drop", diff.Equivalent,
		},
		{
			"a quota before a map of marks",
			"quota over 5 bytes meta mark set tcp dport map { 80 : 1, 90 : 2 }",
			"quota over 5 bytes tcp dport 80 meta mark set 1\n" +
				"quota over 5 bytes tcp dport 90 meta mark set 2", diff.Undecidable,
		},
		{
			"equal quotas before equal maps of marks",
			"quota over 5 bytes meta mark set tcp dport map { 80 : 1, 90 : 2 }",
			"quota over 5 bytes meta mark set tcp dport map { 80 : 1, 90 : 2 }", diff.Equivalent,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sides [2]diff.Side
			for i, text := range []string{tc.left, tc.right} {
				ns := netnstest.New(t)
				load(t, ns, "table inet t {\n"+sets+
					"chain c {\ntype filter hook prerouting priority -150;\n"+text+"\n}\n}")
				rs, err := ReadAll(ns)
				if err != nil {
					t.Fatal(err)
				}
				sides[i].Ruleset = rs
			}
			r := diff.Decide(sides[0], sides[1], diff.Options{})
			if got := r.StrictVerdict(); got != tc.want {
				t.Errorf("verdict %s, want %s\nundecided: %+v\nclasses: %+v", got, tc.want,
					r.Undecided, r.Classes)
			}
		})
	}
	// Sets with the same name are compared by their elements. reading returns a side with a rule
	// that reads the set, which is named w in every side.
	reading := func(set string) diff.Side {
		ns := netnstest.New(t)
		load(t, ns, "table inet t {\n"+strings.ReplaceAll(sets, "set "+set, "set w")+
			"chain c {\ntype filter hook prerouting priority -150;\nip saddr @w drop\n}\n}")
		rs, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{Ruleset: rs}
	}
	checkDecided(t, reading("u"), reading("u"), diff.Equivalent)
	checkDecided(t, reading("u"), reading("v"), diff.Different)
}

// TestElementsWithTimeoutsAreCompared verifies that the elements of a set are compared as they were
// read, although they expire, unless the result must remain true until the rules change.
func TestElementsWithTimeoutsAreCompared(t *testing.T) {
	ns := netnstest.New(t)
	const set = "set s { type inet_service; flags timeout; elements = { 80 timeout 1h, 90 }; }"
	read := func(rule string, o ReadOptions) diff.Side {
		load(t, ns, "flush ruleset\ntable inet t {\n"+set+"\n"+
			"map m { type inet_service : verdict; flags timeout; elements = { 80 timeout 1h : drop }; }\n"+
			"chain c {\ntype filter hook output priority 0;\n"+rule+"\n}\n}")
		found, err := ReadAllTables(ns, o)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{Ruleset: found.Ruleset}
	}
	for _, tc := range []struct {
		rule, other string
		o           ReadOptions
		want        diff.Verdict
	}{
		{"tcp dport @s drop", "tcp dport { 80, 90 } drop", ReadOptions{}, diff.Equivalent},
		{"tcp dport @s drop", "tcp dport 80 drop", ReadOptions{}, diff.Different},
		{"tcp dport vmap @m", "tcp dport 80 drop", ReadOptions{}, diff.Equivalent},
		{
			"tcp dport @s drop", "tcp dport { 80, 90 } drop",
			ReadOptions{UntilChange: true},
			diff.Different,
		},
		{
			"tcp dport @s drop\nupdate @s { tcp sport timeout 1m }",
			"tcp dport { 80, 90 } drop\nupdate @s { tcp sport timeout 1m }",
			ReadOptions{},
			diff.Undecidable,
		},
	} {
		r := diff.Decide(read(tc.rule, tc.o), read(tc.other, tc.o), diff.Options{})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s | %s: %+v: verdict %s, want %s", tc.rule, tc.other, tc.o, got, tc.want)
		}
	}
}

// TestSetsThatMayBeFull compares rules that add elements to sets with different bounds or contents.
// The addition ends the rule if the set is full (nft_dynset_new in net/netfilter/nft_dynset.c).
func TestSetsThatMayBeFull(t *testing.T) {
	side := func(set, rule string) diff.Side {
		ns := netnstest.New(t)
		load(t, ns, "table ip t {\nset s { type ipv4_addr; flags dynamic,timeout; "+set+" }\n"+
			"chain c {\ntype filter hook output priority 0;\n"+rule+"\n}\n}")
		rs, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{Ruleset: rs}
	}
	const drop, read = "add @s { ip daddr } drop", "add @s { ip daddr }\nip saddr @s drop"
	for _, tc := range []struct {
		left, right, rule string
		want              diff.Verdict
	}{
		{"size 1;", "size 1;", drop, diff.Equivalent},
		{"size 1;", "size 100;", drop, diff.Undecidable},
		{"size 1;", "size 100;", "add @s { ip daddr }", diff.Equivalent},
		{"size 1;", "size 1; elements = { 10.0.0.1 };", drop, diff.Undecidable},
		{"size 9; timeout 1h;", "size 9; timeout 1h;", read, diff.Equivalent},
		{"size 9; timeout 1h;", "size 9; timeout 1s;", read, diff.Undecidable},
		{"size 9;", "size 9; limit rate 1/second;", drop, diff.Undecidable},
	} {
		r := diff.Decide(side(tc.left, tc.rule), side(tc.right, tc.rule), diff.Options{})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s | %s: %s: verdict %s, want %s", tc.left, tc.right, tc.rule, got, tc.want)
		}
	}
}

// TestIndexesOfInterfacesAreNotComparedAcrossNamespaces compares rules with equal indexes. In two
// namespaces an index may denote different interfaces, unless it is the index of lo.
func TestIndexesOfInterfacesAreNotComparedAcrossNamespaces(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	side := func(ns *netns.NS, rule string) diff.Side {
		load(t, ns, "flush ruleset\ntable inet t {\n"+
			"chain c {\ntype filter hook prerouting priority 0;\n"+rule+"\n}\n}")
		rs, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{Ruleset: rs}
	}
	for rule, want := range map[string]diff.Verdict{
		"iif 5 drop":                           diff.Undecidable,
		"iif { lo, 5 } drop":                   diff.Undecidable,
		"iif != { 5, 6 } drop":                 diff.Undecidable,
		"iif { 1-5 } drop":                     diff.Undecidable,
		"oif vmap { lo : accept, 5 : drop }":   diff.Undecidable,
		"iif . tcp dport { 5 . 80 } drop":      diff.Undecidable,
		"fib saddr . iif oif 5 drop":           diff.Undecidable,
		"fib daddr oif 5 drop":                 diff.Undecidable,
		"iif 5 limit rate 1/second drop":       diff.Undecidable,
		"iif lo drop":                          diff.Equivalent,
		"iif { lo } drop":                      diff.Equivalent,
		"iif lo limit rate 1/second drop":      diff.Equivalent,
		"fib saddr . iif oif missing drop":     diff.Equivalent,
		"fib daddr . iif oif exists drop":      diff.Equivalent,
		"iif lo meta length 5 meta mark set 1": diff.Equivalent,
	} {
		in := side(a, rule)
		for _, tc := range []struct {
			other diff.Side
			want  diff.Verdict
		}{{side(a, rule), diff.Equivalent}, {side(b, rule), want}} {
			r := diff.Decide(in, tc.other, diff.Options{})
			if got := r.StrictVerdict(); got != tc.want {
				t.Errorf("%s: verdict %s, want %s", rule, got, tc.want)
			}
		}
	}
}

// TestMapsOfStatesThatAChainChanges compares a verdict map with one rule for each of its elements.
// The kernel evaluates the key of a map once, but a rule after a jump reads the state that the
// chain has changed.
func TestMapsOfStatesThatAChainChanges(t *testing.T) {
	ns := netnstest.New(t)
	side := func(list string) diff.Side {
		load(t, ns, "flush ruleset\ntable ip t {\nchain c {\nmeta priority set 1:2\n}\n"+
			"chain o {\ntype filter hook output priority 0;\n"+list+"\n}\n}")
		rs, err := ReadAll(ns)
		if err != nil {
			t.Fatal(err)
		}
		return diff.Side{Ruleset: rs}
	}
	for _, tc := range []struct {
		name, mapped, list string
		want               diff.Verdict
	}{
		{
			"a jump before another verdict",
			"meta priority . tcp dport vmap { 1:1 . 80 : jump c, 1:2 . 80 : drop }",
			"tcp dport 80 meta priority 1:1 jump c\ntcp dport 80 meta priority 1:2 drop",
			diff.Undecidable,
		},
		{
			"a jump before another verdict, one field",
			"meta priority vmap { 1:1 : jump c, 1:2 : drop }",
			"meta priority 1:1 jump c\nmeta priority 1:2 drop",
			diff.Undecidable,
		},
		{
			"a jump before another verdict, a field that no chain changes",
			"iif vmap { 5 : jump c, 6 : drop }", "iif 5 jump c\niif 6 drop", diff.Equivalent,
		},
		{
			"verdicts from which no packet returns",
			"meta priority vmap { 1:1 : goto c, 1:2 : drop }",
			"meta priority 1:1 goto c\nmeta priority 1:2 drop",
			diff.Equivalent,
		},
	} {
		r := diff.Decide(side(tc.mapped), side(tc.list), diff.Options{})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, tc.want)
		}
	}
}
