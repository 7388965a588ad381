package nftlist_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// inputsTable returns a table with a base chain that contains the rules. elements are the elements
// of the set s.
func inputsTable(family, hook string, priority int, elements string, list ...string) string {
	return fmt.Sprintf("table %s t {\n"+
		"\tset s {\n\t\ttype ipv4_addr\n\t\tflags timeout\n\t\telements = { %s }\n\t}\n"+
		"\tset d {\n\t\ttypeof ip saddr . ip ttl\n\t\tsize 9\n\t\tflags dynamic\n\t}\n"+
		"\tchain c {\n\t\ttype filter hook %s priority %d;\n\t\t%s\n\t}\n}\n",
		family, elements, hook, priority, strings.Join(list, "\n\t\t"))
}

// natTable is a table with DNAT rules, which use conntrack.
const natTable = "table ip n {\n\tchain c {\n\t\ttype nat hook prerouting priority -100;\n\t\t" +
	"tcp dport 80 dnat to 10.0.0.3:443\n\t}\n\tchain o {\n\t\ttype nat hook output priority -100;\n\t\t" +
	"tcp dport 80 dnat to 10.0.0.3:443\n\t}\n}\n"

// TestUnsupportedConditionsDependOnTheirInputs verifies that an unsupported condition has the same
// result on both sides only if earlier rules, conntrack and NAT do not change the fields that it
// reads.
func TestUnsupportedConditionsDependOnTheirInputs(t *testing.T) {
	ns := newNamespace(t)
	verdict := func(left, right string) diff.Verdict {
		var read [2]rules.Ruleset
		for i, text := range []string{left, right} {
			ns.load(t, natTable+text)
			rs, err := nft.ReadAll(ns.NS)
			if err != nil {
				t.Fatal(err)
			}
			read[i] = rs
		}
		result := diff.Decide(diff.Side{Ruleset: read[0]}, diff.Side{Ruleset: read[1]}, diff.Options{
			Families: []rules.Family{rules.IPv4, rules.IPv6}, Budget: diff.DefaultBudget,
		})
		return result.StrictVerdict()
	}
	check := func(name, left, right string, equivalent bool) {
		t.Helper()
		if got := verdict(left, right); (got == diff.Equivalent) != equivalent {
			t.Errorf("%s: %v, want equivalent: %t", name, got, equivalent)
		}
	}

	// The same rule at two priorities.
	const raw, mangle, afterNAT = -300, -150, -90
	for _, tc := range []struct {
		rule       string
		from, to   int
		equivalent bool
	}{
		{"ct original packets > 0", raw, mangle, false},
		{"ct id > 0", raw, mangle, false},
		{`ct helper "ftp"`, raw, mangle, false},
		{"ct original ip daddr 10.0.0.1", raw, mangle, false},
		{"ct label 1", raw, mangle, false},
		{"ct zone 0", raw, mangle, false},
		{"ip ttl 64", raw, mangle, true},
		{"meta length 50", raw, mangle, true},
		{"meta length 50", mangle, afterNAT, true},
		{"ct id > 0", mangle, -140, true},
		{"@th,16,16 443", mangle, afterNAT, false},
		{"ip daddr & 0.0.0.255 == 3", mangle, afterNAT, false},
		{"ip checksum 5", mangle, afterNAT, false},
		{"ip id 5", mangle, afterNAT, true},
		{"tcp window 5", mangle, afterNAT, true},
		{"symhash mod 2 0", mangle, afterNAT, false},
		{"ip daddr . ip ttl { 10.0.0.3 . 64 }", mangle, afterNAT, false},
		{"fib daddr . mark type local", mangle, afterNAT, false},
		{"meta oifgroup 5", mangle, afterNAT, false},
		{"meta oiftype 772", mangle, afterNAT, false},
		{`meta oifkind "vrf"`, mangle, afterNAT, false},
		{"meta iifgroup 5", mangle, afterNAT, true},
		{"meta iiftype 772", mangle, afterNAT, false},
		{"meta pkttype multicast", mangle, afterNAT, false},
		{"meta cgroup 5", raw, mangle, true},
		{"tcp option maxseg size 5", mangle, afterNAT, true},
	} {
		action := " drop"
		if tc.from == raw { // a drop before conntrack leaves no entry, on which NAT depends
			action = " meta mark set 1"
		}
		for _, hook := range []string{"prerouting", "output"} {
			check(fmt.Sprintf("%s at %s %d and %d", tc.rule, hook, tc.from, tc.to),
				inputsTable("ip", hook, tc.from, "10.0.0.1", tc.rule+action),
				inputsTable("ip", hook, tc.to, "10.0.0.1", tc.rule+action), tc.equivalent)
		}
	}

	// A rule that changes a field, before and after a rule that may read it.
	for _, tc := range []struct {
		change, rule string
		equivalent   bool
	}{
		{"meta mark set 7", "meta mark . ip ttl { 7 . 64 } drop", false},
		{"meta mark set 7", "fib daddr . mark type local drop", false},
		{"meta mark set 7", "jhash meta mark mod 2 0 drop", false},
		{"meta mark set 7", "rt classid 5 drop", false},
		{"meta mark set 7", "ip ttl 64 drop", true},
		{"meta mark set 7", "ct id > 0 drop", true},
		{"ct mark set 7", "ct mark . ip ttl { 7 . 64 } drop", false},
		{"meta mark set 7", "update @d { ip saddr . ip ttl }", true},
	} {
		check(fmt.Sprintf("%s before and after %s", tc.change, tc.rule),
			inputsTable("ip", "output", mangle, "10.0.0.1", tc.change, tc.rule),
			inputsTable("ip", "output", mangle, "10.0.0.1", tc.rule, tc.change), tc.equivalent)
	}

	// A rule that writes a state, before and after a rule that may read it. Neither rule drops the
	// packet. Therefore both rulesets write the state for the same packets.
	const setMark = " meta mark set 1"
	for _, tc := range []struct {
		write, rule string
		equivalent  bool
	}{
		{"meta priority set 1:2", "meta priority 1:2" + setMark, false},
		{"meta priority set 1:2", "ip ttl 64" + setMark, true},
		{"ct label set 1", "ct label 1" + setMark, false},
		{"ct label set 1", "meta priority set 1:2", true},
		{"update @s { ip saddr timeout 1h }", "ip saddr @s" + setMark, false},
	} {
		check(fmt.Sprintf("%s before and after %s", tc.write, tc.rule),
			inputsTable("ip", "output", mangle, "10.0.0.1", tc.write, tc.rule),
			inputsTable("ip", "output", mangle, "10.0.0.1", tc.rule, tc.write), tc.equivalent)
		check(tc.write+" and "+tc.rule+" in the same order on both sides",
			inputsTable("ip", "output", mangle, "10.0.0.1", tc.write, tc.rule),
			inputsTable("ip", "output", mangle, "10.0.0.1", tc.write, tc.rule), true)
	}

	// The elements are compared as they were read. If a rule changes the set, the timeout of an
	// element is an input of the condition.
	const add = "add @s { ip saddr timeout 1h }"
	for _, tc := range []struct {
		left, right, change string
		equivalent          bool
	}{
		{"10.0.0.1 timeout 1h", "10.0.0.1 timeout 1h", "", true},
		{"10.0.0.1 timeout 1h", "10.0.0.2 timeout 1h", "", false},
		{"10.0.0.1 timeout 1h", "10.0.0.1", "", true},
		{"10.0.0.1 timeout 1h", "10.0.0.1 timeout 1h", add, true},
		{"10.0.0.1 timeout 1h", "10.0.0.1", add, false},
	} {
		check(strings.Join([]string{tc.left, "and", tc.right, tc.change}, " "),
			inputsTable("ip", "output", mangle, tc.left, "ip daddr @s drop", tc.change),
			inputsTable("ip", "output", mangle, tc.right, "ip daddr @s drop", tc.change), tc.equivalent)
	}
}
