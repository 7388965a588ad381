package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestOutcomesOfTranslatedWitnesses verifies that the outcomes of a class name what differs, if
// only the destination to which NAT translates packets differs (NATMappingPersists).
func TestOutcomesOfTranslatedWitnesses(t *testing.T) {
	nat := base(rules.NAT, rules.Output, -100)
	for name, m := range map[string]rules.Match{
		"port":    rules.MatchPort{Side: rules.Destination, Ports: rules.Singles[uint16](443)},
		"address": to("10.9.9.9/32"),
	} {
		at := func(priority int) rules.Ruleset {
			return ruleset(nat, base(rules.Filter, rules.Output, priority, when(rules.Drop, tcp, m)))
		}
		r := decide(at(-150), at(-90))
		if len(r.Classes) == 0 {
			t.Fatalf("%s: verdict %s, want a class", name, r.StrictVerdict())
		}
		for _, c := range r.Classes {
			left, right := c.Outcome.Left.Outcome, c.Outcome.Right.Outcome
			if left.Dropped == right.Dropped || left.Undecided != "" || right.Undecided != "" {
				t.Errorf("%s: the witness %s of %v: %s and %s, want one dropped", name, c.Witness,
					c.Packets, left, right)
			}
			if c.Witness.Status&rules.StatusDNAT == 0 && !c.Witness.Reply {
				t.Errorf("%s: the witness %s does not state the translation", name, c.Witness)
			}
			if !c.Contains(c.Witness) {
				t.Errorf("%s: the class %v does not contain its witness %s", name, c.Packets, c.Witness)
			}
			untranslated := c.Witness
			untranslated.Status &^= rules.StatusDNAT | rules.StatusSNAT
			if c.Contains(untranslated) {
				t.Errorf("%s: the class %v contains %s, whose connection is not translated", name,
					c.Packets, untranslated)
			}
			if !diff.Possible(c.Witness) {
				t.Errorf("%s: the witness %s of %v is not possible", name, c.Witness, c.Packets)
			}
		}
	}
}

// TestOutcomesOfPacketsThatAreSentToThisHost verifies that the outcomes of a class that exists only
// if earlier packets of its connection were sent to this host name what differs.
func TestOutcomesOfPacketsThatAreSentToThisHost(t *testing.T) {
	nat := base(rules.NAT, rules.Output, -100)
	dropping := base(rules.Filter, rules.Prerouting, -150, when(rules.Drop, tcp, toPort(443),
		rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}},
		rules.MatchStatus{Status: rules.StatusDNAT}))
	r := decide(ruleset(nat, dropping), ruleset(nat))
	if len(r.Classes) == 0 {
		t.Fatalf("verdict %s, want a class", r.StrictVerdict())
	}
	for _, c := range r.Classes {
		if left, right := c.Outcome.Left.Outcome, c.Outcome.Right.Outcome; !left.Dropped || right.Dropped {
			t.Errorf("the witness %s of %v: %s and %s, want only the first dropped", c.Witness,
				c.Packets, left, right)
		}
	}
}
