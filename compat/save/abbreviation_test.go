package save_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// iptables accepts abbreviated names of all options. A word after a match or target with further
// options may therefore be an option of the header, of another match or of the implied match. If it
// is not certainly an option of this match or target, it makes the match or target unknown, with
// any effect, or it is an error.
func TestWordsAfterMatchesAndTargetsWithFurtherOptions(t *testing.T) {
	const targetError = "want -j, -g, --jump or --goto as a word of its own, without quotes, or an option that is no abbreviation of these"
	for _, tc := range []struct {
		rule, want string
		complete   string // the rule with complete names, or empty
	}{
		{
			"-p udp -j SNAT --to-source 10.0.0.1 --dpo 53",
			"meta l4proto udp counter unknown(-j SNAT --to-source 10.0.0.1 --dpo 53)",
			"-p udp --dport 53 -j SNAT --to-source 10.0.0.1",
		},
		{
			"-j SNAT --to-source 10.0.0.1 --out-int eth0",
			"counter unknown(-j SNAT --to-source 10.0.0.1 --out-int eth0)",
			"-o eth0 -j SNAT --to-source 10.0.0.1",
		},
		{
			"-j SNAT --to-source 10.0.0.1 --to-source 10.0.0.2",
			"counter unknown(-j SNAT --to-source 10.0.0.1 --to-source 10.0.0.2)", "",
		},
		{
			"-m length --length 5 --destin 10.0.0.0/8 -j DROP",
			"unknown(-m length --length 5 --destin 10.0.0.0/8) counter drop",
			"-d 10.0.0.0/8 -m length --length 5 -j DROP",
		},
		{
			"-m set --match-set s dst --destin 10.0.0.0/8 -j DROP",
			"unknown(-m set --match-set s dst --destin 10.0.0.0/8) counter drop",
			"-d 10.0.0.0/8 -m set --match-set s dst -j DROP",
		},
		{
			"-m set --match-set s dst --match-set s src -j DROP",
			"unknown(-m set --match-set s dst --match-set s src) counter drop", "",
		},
		{
			"-p tcp -m cgroup --path a/b --dpo 80 -j DROP",
			"meta l4proto tcp unknown(-m cgroup --path a/b --dpo 80) counter drop",
			"-p tcp --dport 80 -m cgroup --path a/b -j DROP",
		},
		{
			"-p tcp -j LOG --log-prefix a --dpo 80",
			"meta l4proto tcp counter unknown(-j LOG --log-prefix a --dpo 80)",
			"-p tcp --dport 80 -j LOG --log-prefix a",
		},
		{"-m set --match-s s dst -j DROP", "dst ipset s counter drop", "-m set --match-set s dst -j DROP"},
		// iptables rejects the abbreviations of the next two rules, because several options begin
		// with them.
		{"-m limit --li 5/s", "unknown(-m limit --li 5/s) counter", ""},
		{
			"-j SNAT --to-source 10.0.0.1 --rand",
			"counter unknown(-j SNAT --to-source 10.0.0.1 --rand)", "",
		},
		{"-m length --length 5 --jum DROP", targetError, "-m length --length 5 -j DROP"},
		{"-m length --length 5 --go C", targetError, ""},
		{"-m length --length 5 -jDROP", targetError, ""},
		{`-m length --length 5 "-j" DROP`, targetError, ""},
		{"-m fancy --jump=DROP", targetError, ""},
		{"-p gre --jum DROP", targetError, ""},
		{
			`-m length --length 5 "!" -s 10.0.0.1 -j DROP`,
			"want a single ! without quotes before an option", "",
		},
		{
			"-m fancy -m owner --uid 5",
			"want the complete name of an option, because the rule has a match or target whose options are unknown",
			"",
		},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			text := func(rule string) string {
				return "*nat\n:C - [0:0]\n-A POSTROUTING " + rule + "\nCOMMIT\n"
			}
			tables, err := save.Parse(rules.IPv4, "f", strings.NewReader(text(tc.rule)))
			if strings.HasPrefix(tc.want, "want ") {
				if err == nil || !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r := tables[0].Chain("POSTROUTING").Rules[0]
			if diff := cmp.Diff(tc.want, r.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !strings.Contains(tc.want, "unknown(") {
				return
			}
			if u, _ := lastUnknown(&r).(rules.Unknown); u.Effect != rules.AnyEffect || u.Ignores != 0 {
				t.Errorf("effect %v, ignored inputs %b, want any effect and no ignored inputs",
					u.Effect, u.Ignores)
			}
			if tc.complete == "" {
				return
			}
			for _, other := range []string{"*nat\nCOMMIT\n", text(tc.complete)} {
				result := diff.Decide(diff.Side{Ruleset: rules.Ruleset{Tables: tables}},
					diff.Side{Ruleset: rules.Ruleset{Tables: parse(t, rules.IPv4, other)}}, diff.Options{})
				if got := result.Verdict(); got != diff.Undecidable {
					t.Errorf("compared with %s: %v, want %v", other, got, diff.Undecidable)
				}
			}
		})
	}
}

// lastUnknown returns the last unknown match or action of the rule, or nil.
func lastUnknown(r *rules.Rule) any {
	var last any
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok {
			last = u
		}
	}
	for _, a := range r.Actions {
		if u, ok := a.(rules.Unknown); ok {
			last = u
		}
	}
	return last
}
