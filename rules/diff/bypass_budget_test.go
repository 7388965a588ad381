package diff

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
)

// tcpTo returns the matches of TCP packets to a port.
func tcpTo(port uint16) []rules.Match {
	return []rules.Match{
		rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}},
		rules.MatchPort{Side: rules.Destination, Ports: rules.Singles(port)},
	}
}

// redirectingTCP returns a ruleset that redirects TCP packets at output. The given rules are in
// another table.
func redirectingTCP(foreign ...rules.Rule) rules.Ruleset {
	rs := outputFilter(rules.Rule{
		Matches: tcpTo(80), Actions: []rules.Action{rules.RedirectTo{Port: 15001}},
	})
	rs.Tables[0].Chains[0].Base.Type = rules.NAT
	if len(foreign) > 0 {
		added := outputFilter(foreign...).Tables[0]
		added.Name, added.Chains[0].Base.Priority = "foreign", -300
		rs.Tables = append(rs.Tables, added)
	}
	return rs
}

// If the budget ends in the comparison of later packets, Bypass returns the undecided rules of the
// first packets: a rule that a smaller budget finds is not lost with a larger budget.
func TestBypassKeepsUndecidedRulesWhenTheBudgetEnds(t *testing.T) {
	foreign := []rules.Rule{
		{Matches: tcpTo(80), Actions: []rules.Action{rules.Unknown{Text: "anything"}}},
	}
	for zone := range uint16(20) {
		foreign = append(foreign, rules.Rule{
			Matches: tcpTo(zone + 1), Actions: []rules.Action{rules.SetZone{Zone: zone + 1}},
		})
	}
	desired, live := redirectingTCP(), redirectingTCP(foreign...)
	found, exhausted := false, 0
	for steps := 1000; ; steps += steps / 32 {
		d := newDecision(withRouting(desired), withRouting(live), Options{Budget: Budget{Time: 1}})
		d.meter.stepsLeft = steps
		d.findBypasses()
		if found && len(d.result.Undecided) == 0 {
			t.Fatalf("%d steps: no undecided rule, limit %q, want the rule as with fewer steps",
				steps, d.result.Exhausted)
		}
		found = len(d.result.Undecided) > 0
		if d.result.Exhausted == "" {
			break
		}
		if found {
			exhausted++
		}
	}
	if !found || exhausted == 0 {
		t.Errorf("undecided rule found: %t, with an exhausted budget: %d times; want true, and at "+
			"least once", found, exhausted)
	}
}

// The work on pairs of conntrack zones does not depend on the number of rules.
func TestBypassWithManyZones(t *testing.T) {
	var foreign []rules.Rule
	for zone := range uint16(60) {
		foreign = append(foreign, rules.Rule{
			Matches: []rules.Match{rules.MatchMark{Value: uint32(zone) + 1, Mask: ^uint32(0)}},
			Actions: []rules.Action{rules.SetZone{Zone: zone + 1}},
		})
	}
	live := redirectingTCP(foreign...)
	// No rule jumps to this chain.
	others := rules.Chain{Name: "others", Rules: make([]rules.Rule, 400_000)}
	live.Tables[0].Chains = append(live.Tables[0].Chains, others)
	budgettest.Bound{Processor: 2 * time.Second, Allocated: 512 << 20}.Check(t, "Bypass", func() {
		Bypass(redirectingTCP(), live, Options{})
	})
}
