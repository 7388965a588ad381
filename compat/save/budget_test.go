package save_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// boundOfReading is the bound for parsing a text. boundOfDecision is the bound for one decision or
// explanation within diff.AgentBudget, including resources that the budget does not count. The
// bounds are about twenty times the measured values.
var (
	boundOfReading  = budgettest.Bound{Processor: 10 * time.Second, Allocated: 1 << 30}
	boundOfDecision = budgettest.Bound{Processor: 2 * time.Second, Allocated: 256 << 20}
)

// explainedPackets are the packets that checkBudget explains.
var explainedPackets = []string{
	"out tcp 10.244.1.5:40000 > 10.1.0.7:80 uid 7", "in tcp 10.1.0.7:40000 > 10.244.1.5:80",
	"out tcp 127.0.0.1:4000 > 127.0.0.1:80",
}

// checkBudget verifies that a decision about two rulesets, and explanations of packets in the left
// one, end within their budget.
func checkBudget(t testing.TB, left, right rules.Ruleset) {
	t.Helper()
	boundOfDecision.Check(t, "deciding", func() {
		result := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right},
			diff.Options{Budget: diff.AgentBudget})
		if len(result.Undecided) > diff.MaxUndecided {
			t.Errorf("%d undecided conditions, want at most %d", len(result.Undecided),
				diff.MaxUndecided)
		}
	})
	for _, text := range explainedPackets {
		p, err := rules.ParsePacket(text)
		if err != nil {
			t.Fatal(err)
		}
		boundOfDecision.Check(t, "explaining "+text, func() {
			for _, pass := range diff.ExplainWithin(&left, p, diff.AgentBudget).Passes {
				if len(pass.Steps) > diff.MaxSteps {
					t.Errorf("%s: %d steps, want at most %d", text, len(pass.Steps), diff.MaxSteps)
				}
			}
		})
	}
}

func TestCostlyTextsEndWithinTheirBudget(t *testing.T) {
	const many = 4000
	for _, c := range rulestest.Sample(costlyTexts, os.Getenv) {
		t.Run(c.name, func(t *testing.T) {
			var tables []rules.Table
			boundOfReading.Check(t, "reading", func() {
				tables = parse(t, rules.IPv4, c.text(many))
			})
			changed := strings.Replace(c.text(many), "COMMIT",
				"-A OUTPUT -p tcp --dport 443 -j ACCEPT\nCOMMIT", 1)
			checkBudget(t, rules.Ruleset{Tables: tables},
				rules.Ruleset{Tables: parse(t, rules.IPv4, changed)})
		})
	}
}

// TestCostlyTextsAreDecided verifies that decisions about texts of their decidedSize end with a
// verdict within a memory budget of 512 MiB. An evaluation of each path would take minutes or
// gigabytes.
func TestCostlyTextsAreDecided(t *testing.T) {
	for _, c := range rulestest.Sample(costlyTexts, os.Getenv) {
		if c.decidedSize == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			read := func() diff.Side {
				return diff.Side{Ruleset: rules.Ruleset{Tables: parse(t, rules.IPv4,
					c.text(c.decidedSize))}}
			}
			result := diff.Decide(read(), read(), diff.Options{
				Families: []rules.Family{rules.IPv4}, Budget: diff.Budget{Memory: 512 << 20},
			})
			if verdict := result.StrictVerdict(); verdict != diff.Equivalent {
				t.Errorf("verdict %s, want %s; exhausted: %q", verdict, diff.Equivalent,
					result.Exhausted)
			}
		})
	}
}

// FuzzDecideWithinBudget verifies that parsing any text, comparing it with the same text without
// one line, and explaining packets end within their budget.
func FuzzDecideWithinBudget(f *testing.F) {
	for _, c := range costlyTexts {
		f.Add(c.text(20), 5)
		f.Add(c.text(500), 50)
	}
	f.Fuzz(func(t *testing.T, text string, without int) {
		if len(text) > 64<<10 {
			return
		}
		var tables []rules.Table
		var err error
		boundOfReading.Check(t, "reading", func() {
			tables, err = save.Parse(rules.IPv4, "f", strings.NewReader(text))
		})
		if err != nil {
			return
		}
		left := rules.Ruleset{Tables: tables}
		checkBudget(t, left, withoutLine(left, text, without))
	})
}

// withoutLine returns the ruleset of the text without one line, or the same ruleset if the
// remaining text is invalid.
func withoutLine(rs rules.Ruleset, text string, line int) rules.Ruleset {
	lines := strings.Split(text, "\n")
	at := int(uint(line) % uint(len(lines)))
	tables, err := save.Parse(rules.IPv4, "f",
		strings.NewReader(strings.Join(append(lines[:at:at], lines[at+1:]...), "\n")))
	if err != nil {
		return rs
	}
	return rules.Ruleset{Tables: tables}
}

// FuzzDecideIstioLogWithinBudget verifies that parsing any log, comparing its rules with the
// ruleset of its parameters, and explaining packets end within their budget.
func FuzzDecideIstioLogWithinBudget(f *testing.F) {
	for _, c := range costlyTexts {
		text := strings.ReplaceAll(strings.TrimSpace(c.text(20)), "\n", `\n`)
		f.Add(`{"level":"info","msg":"Final iptables state (IPv4):\n` + text + `"}`)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 64<<10 {
			return
		}
		var log save.IstioLog
		var err error
		boundOfReading.Check(t, "reading", func() {
			log, err = save.ParseIstioLog("f", strings.NewReader(text))
		})
		if err != nil {
			return
		}
		right := rules.Ruleset{Tables: log.Tables}
		if log.Redirect != nil {
			right = rules.MustCompile(*log.Redirect)
		}
		checkBudget(t, rules.Ruleset{Tables: log.Tables}, right)
	})
}
