package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// costlyTables returns tables, by name, with which the owner of a pod could keep the node agent
// busy.
func costlyTables() map[string]rules.Table {
	base := func(list ...rules.Rule) rules.Chain {
		return rules.Chain{
			Name: "b", Base: &rules.Base{Type: rules.Filter, Hook: rules.Output}, Rules: list,
		}
	}
	jump := func(to int) rules.Rule {
		return rules.Rule{Actions: []rules.Action{rules.Jump{Chain: fmt.Sprint("c", to)}}}
	}
	randomMark := func(i int) rules.Rule {
		return rules.Rule{
			Matches: []rules.Match{rules.Unknown{
				Text: fmt.Sprintf("limit rate %d/second", i), Effect: rules.ReadsVarying,
			}},
			Actions: []rules.Action{rules.MixMark{Mark: ^uint32(0), Xor: uint32(i) * 0x9e3779b9}},
		}
	}
	const levels = 14
	nested := rules.Table{Family: rules.IPv4, Name: "nested", Chains: []rules.Chain{base(jump(0))}}
	for i := range levels {
		chain := rules.Chain{
			Name: fmt.Sprint("c", i), Rules: []rules.Rule{jump(i + 1), jump(i + 1)},
		}
		if i == levels-1 {
			chain.Rules = []rules.Rule{randomMark(1)}
		}
		nested.Chains = append(nested.Chains, chain)
	}
	randomMarks := rules.Table{Family: rules.IPv4, Name: "random-marks", Chains: []rules.Chain{base()}}
	for i := range 20_000 {
		randomMarks.Chains[0].Rules = append(randomMarks.Chains[0].Rules, randomMark(i))
	}
	return map[string]rules.Table{"nested jumps": nested, "random marks": randomMarks}
}

// The bound is far above diff.AgentBudget, which limits the decisions, but not the rest of
// Diagnose.
func TestDiagnoseIsBoundedForCostlyTables(t *testing.T) {
	bound := budgettest.Bound{Processor: 2 * time.Second, Allocated: 256 << 20}
	for name, table := range costlyTables() {
		f := healthy()
		f.Budget, f.Tables = diff.AgentBudget, []rules.Table{table}
		bound.Check(t, name, func() { Diagnose(f, typical(rules.ModeRedirect)) })
	}
}

// All tested packets share one budget. Only one finding reports that the budget is exhausted. The
// finding names the limit.
func TestDiagnoseReportsAnExhaustedBudget(t *testing.T) {
	f := healthy()
	f.Budget = diff.Budget{Time: 20 * time.Millisecond, Memory: 3 << 20}
	f.Tables = []rules.Table{costlyTables()["random marks"]}
	var reported []string
	for _, finding := range Diagnose(f, typical(rules.ModeRedirect)) {
		if strings.HasPrefix(finding.Summary, "it is unknown whether foreign rules change the outcome") &&
			strings.Contains(finding.Summary, ": more than") {
			reported = append(reported, finding.Summary)
		}
	}
	limits := []string{
		f.Budget.Time.String() + " of work",
		fmt.Sprintf("half of %d MB of memory", f.Budget.Memory>>20),
	}
	if len(reported) != 1 || !strings.HasSuffix(reported[0], limits[0]) &&
		!strings.HasSuffix(reported[0], limits[1]) {
		t.Errorf("findings about the budget %q, want one that ends with one of %q", reported, limits)
	}
}
