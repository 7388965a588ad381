package save_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// addresses returns a list of n addresses in the network first.0.0.0/8, with gaps between the
// addresses.
func addresses(n, first int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%d.%d.%d.1", first, i>>8, i&0xff))
	}
	return strings.Join(list, ",")
}

// A rule with lists of addresses becomes a rule for each combination. If there are too many
// combinations, the rule becomes one equivalent rule if possible.
func TestParseLongListsOfAddresses(t *testing.T) {
	const tooMany = "want lists of addresses that are disjoint, or shorter ones: a text may add at most 262144 rules and chains, or fewer with many matches"
	for _, tc := range []struct {
		name, text   string
		rules        int // number of rules
		sources      int // source ranges of the first rule
		destinations int
		want         string // suffix of the error
	}{
		{
			"64 times 64", "-A OUTPUT -s " + addresses(64, 10) + " -d " + addresses(64, 20), 4096,
			1, 1, "",
		},
		{
			"65 times 64", "-A OUTPUT -s " + addresses(65, 10) + " -d " + addresses(64, 20), 1, 65,
			64, "",
		},
		{
			"1500 times 1500", "-A OUTPUT -s " + addresses(1500, 10) + " -d " + addresses(1500, 20),
			1, 1500, 1500, "",
		},
		{"5000 addresses", "-A OUTPUT -s " + addresses(5000, 10), 1, 5000, 0, ""},
		{
			"5000 addresses and a duplicate", "-A OUTPUT -s " + addresses(5000, 10) + ",10.0.0.1", 5001, 1,
			0,
			"",
		},
		{
			"adjacent prefixes", "-A OUTPUT -s 10.0.0.0/9,10.128.0.0/9 -d " + addresses(4096, 20),
			1, 1,
			4096, "",
		},
		{
			"a list that includes all addresses is not disjoint",
			"-A OUTPUT -s 0.0.0.0/0,10.0.0.1 -d " + addresses(4096, 20), 8192, 0, 1, "",
		},
		{
			"a host name may have any address",
			"-A OUTPUT -s example.com,10.0.0.1 -d " + addresses(4096, 20), 8192, 0, 1, "",
		},
		{
			"1500 times 1500 with overlaps",
			"-A OUTPUT -s " + addresses(1499, 10) + ",10.0.0.0/24 -d " + addresses(1500, 20), 0, 0,
			0, tooMany,
		},
		{
			"many short lists",
			strings.Repeat("-A OUTPUT -s "+addresses(64, 10)+" -d "+addresses(64, 20)+"\n", 70), 0,
			0, 0, tooMany,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tables, err := save.Parse(rules.IPv4, "f", strings.NewReader("*nat\n"+tc.text+
				"\nCOMMIT\n"))
			if tc.want != "" {
				if err == nil || !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("got %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			list := tables[0].Chain("OUTPUT").Rules
			var sources, destinations int
			for _, m := range list[0].Matches {
				if m, ok := m.(rules.MatchAddr); ok && m.Side == rules.Source {
					sources = len(m.Ranges)
				} else if ok {
					destinations = len(m.Ranges)
				}
			}
			if len(list) != tc.rules || sources != tc.sources || destinations != tc.destinations {
				t.Errorf("%d rules, %d sources, %d destinations; want %d, %d, %d", len(list), sources,
					destinations, tc.rules, tc.sources, tc.destinations)
			}
		})
	}
}

// In a chain with a merged rule, commands must not refer to rules by number. They may delete a rule
// by its content.
func TestParseRejectsNumbersOfMergedRules(t *testing.T) {
	many := "-s " + addresses(5000, 10) + " -j DROP\n"
	for _, command := range []string{"-D OUTPUT 1", "-I OUTPUT 2 -j DROP"} {
		_, err := save.Parse(rules.IPv4, "f", strings.NewReader("*filter\n-A OUTPUT "+many+command+
			"\nCOMMIT\n"))
		const want = "want no number: a rule of chain OUTPUT has more than 4096 combinations of addresses, and is read as a single rule, so that the numbers of rules are unknown"
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", command, err, want)
		}
	}
	_, err := save.Parse(rules.IPv4, "f", strings.NewReader("*filter\n-A OUTPUT "+many+
		"-D OUTPUT -s 10.0.0.1 -j DROP\nCOMMIT\n"))
	const want = "want a rule of chain OUTPUT as a whole: a rule with more than 4096 combinations of addresses is read as a single rule"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	tables := parse(t, rules.IPv4, "*filter\n-A OUTPUT "+many+"-I OUTPUT -j RETURN\n-D OUTPUT "+
		many+"COMMIT\n")
	if list := tables[0].Chain("OUTPUT").Rules; len(list) != 1 ||
		list[0].Actions[1] != rules.Return {
		t.Errorf("%d rules, want only the rule with the target RETURN", len(list))
	}
}

func TestParseLimitsTheWordsOfARule(t *testing.T) {
	_, err := save.Parse(rules.IPv4, "f",
		strings.NewReader(rule(strings.Repeat("-m mark --mark 1 ", 257))))
	if want := `f:2:4363: "-m": want at most 1024 words in a rule`; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// An error contains only the beginning of a long token.
func TestSyntaxErrorIsShort(t *testing.T) {
	_, err := save.Parse(rules.IPv4, "f", strings.NewReader(rule("-s "+strings.Repeat("1/", 5000))))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("got %v, want an error of at most 300 bytes", err)
	}
}

// Commands in any order have the same result for a chain as for a plain list of rules.
func TestParseCommandsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := "*filter\n:A - [0:0]\n"
		type ruleAt struct{ mark, line int }
		var want []ruleAt
		commands := rapid.IntRange(0, 60).Draw(t, "commands")
		for line := 3; line < 3+commands; line++ {
			mark := rapid.IntRange(0, 3).Draw(t, "mark")
			r := fmt.Sprintf("-m mark --mark %d", mark)
			same := slices.IndexFunc(want, func(r ruleAt) bool { return r.mark == mark })
			switch command := rapid.IntRange(0, 9).Draw(t, "command"); {
			case command < 4:
				text += "-A A " + r + "\n"
				want = append(want, ruleAt{mark, line})
			case command < 6:
				at := rapid.IntRange(0, len(want)).Draw(t, "position")
				text += fmt.Sprintf("-I A %d %s\n", at+1, r)
				want = slices.Insert(want, at, ruleAt{mark, line})
			case command < 7 && len(want) > 0:
				at := rapid.IntRange(0, len(want)-1).Draw(t, "position")
				text += fmt.Sprintf("-D A %d\n", at+1)
				want = slices.Delete(want, at, at+1)
			case command < 9 && same >= 0:
				text += "-D A " + r + "\n"
				want = slices.Delete(want, same, same+1)
			default:
				text += "\n"
			}
		}
		tables, err := save.Parse(rules.IPv4, "f", strings.NewReader(text+"COMMIT\n"))
		if err != nil {
			t.Fatal(err)
		}
		var got []ruleAt
		for _, r := range tables[0].Chain("A").Rules {
			got = append(got, ruleAt{int(r.Matches[0].(rules.MatchMark).Value), int(r.Line)})
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(ruleAt{}),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s-want +got:\n%s", text, diff)
		}
	})
}

// A long list of n rules has at most n/200 blocks, and each block has at most 512 rules. A command
// therefore visits at most n/200 blocks and 512 rules.
func TestListsOfRulesHaveFewSmallBlocks(t *testing.T) {
	const n = 20000
	for name, at := range map[string]func(i int) int{
		"at the end":       func(i int) int { return i },
		"at the beginning": func(int) int { return 0 },
		"in the middle":    func(i int) int { return i / 2 },
		"anywhere":         func(i int) int { return i * 7919 % (i + 1) },
	} {
		indexes := make([]int, n)
		for i := range indexes {
			indexes[i] = at(i)
		}
		sizes := save.BlocksOf(indexes)
		total := 0
		for _, size := range sizes {
			total += size
		}
		if total != n || len(sizes) > n/200 || slices.Max(sizes) > 512 {
			t.Errorf("insertions %s: %d rules in %d blocks of up to %d; want %d rules in at most %d"+
				" blocks of up to 512", name, total, len(sizes), slices.Max(sizes), n, n/200)
		}
	}
}

// After a chain was deleted, a chain with the same name may be added, and rules may jump to it.
func TestParseChainsThatAreCreatedAndDeleted(t *testing.T) {
	tables := parse(t, rules.IPv4,
		"*filter\n-N A\n-N B\n-A A -j B\n-A INPUT -j A\n-D A 1\n-X B\n-F\n-X A\n-N B\n-A INPUT -g B\n-N A\n-X A\nCOMMIT\n")
	var names []string
	for _, c := range tables[0].Chains {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "INPUT FORWARD OUTPUT B" {
		t.Errorf("chains %s, want the built-in chains and B", got)
	}
	const text = "*filter\n-N A\n-N B\n-A INPUT -j B\n-F INPUT\n-A A -j B\n-D A -j B\n-A INPUT -m mark --mark 1 -j B\n-X B\nCOMMIT\n"
	_, err := save.Parse(rules.IPv4, "f", strings.NewReader(text))
	if want := `f:9:4: "B": want a chain to delete that no rule jumps to: a rule of chain INPUT does`; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// boundOfLargeTexts is the bound for reading a text or a log of 10 MiB, the default size of a
// container's log. Without limits, most of the texts allocate 0.6 to 2.3 GiB.
var boundOfLargeTexts = budgettest.Bound{Processor: 30 * time.Second, Allocated: 512 << 20}

// The owner of a pod chooses its log and its rules. A node agent with little memory must be able to
// read them.
func TestMemoryOfLargeTexts(t *testing.T) {
	if budgettest.RaceDetector {
		t.Skip("with the race detector, the package regexp allocates memory that it otherwise reuses")
	}
	const (
		size  = 10 << 20
		begin = "info\tFinal iptables state (IPv4):\n*nat\n:A - [0:0]\n"
		limit = ": a text may add at most 262144 rules and chains, or fewer with many matches"
		lines = "want at most 262144 lines of entries in a log"
		lists = "want lists of addresses that are disjoint, or shorter ones" + limit
	)
	chains := func() string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, ":%x -\n", i)
		}
		return b.String()
	}
	inJSON := func(text string) string {
		return `{"level":"info","msg":"` + strings.ReplaceAll(
			strings.TrimPrefix(begin, "info\t")+text, "\n", `\n`) + `"}` + "\n"
	}
	many := func(text string) string { return strings.Repeat(text, size/len(text)) }
	type row struct{ name, log, want string }
	rows := []row{
		{"rules", begin + many("-A A\n"), lines},
		{"deleted rules", begin + many("-A A\n-D A 1\n"), lines},
		{"blank lines", begin + many("\n"), lines},
		{"entries", many("info\t\n"), lines},
		{"rules in JSON", inJSON(many("-A A\n")), lines},
		{"blank lines in JSON", inJSON(many("\n")), lines},
		{
			"rules of two families", begin + strings.Repeat("-A A -m mark --mark 1\n", 120_000) + "COMMIT\n" +
				strings.ReplaceAll(begin, "4", "6") + strings.Repeat("-A A -m mark --mark 1\n", 120_000),
			"want fewer rules" + limit,
		},
		{"rules of two addresses", begin + strings.Repeat("-A A -s 1,2\n", 200_000), lists},
		{"chains", begin + chains(), lines},
		{"a list of addresses", begin + "-A A -s " + many("1,") + "1\n", lists},
	}
	for _, tc := range rulestest.Sample(rows, os.Getenv) {
		t.Run(tc.name, func(t *testing.T) {
			boundOfLargeTexts.Check(t, "reading", func() {
				_, err := save.ParseIstioLog("f", strings.NewReader(tc.log+"COMMIT\n"))
				if err == nil || !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("got %.300v, want %s", err, tc.want)
				}
			})
		})
	}
	for want, text := range map[string]string{
		"want fewer rules" + limit: many("-A A\n"), "want fewer chains" + limit: chains(),
	} {
		boundOfLargeTexts.Check(t, "reading", func() {
			_, err := save.Parse(rules.IPv4, "f", strings.NewReader("*nat\n:A -\n"+text+"COMMIT\n"))
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("got %.300v, want %s", err, want)
			}
		})
	}
}
