package diff_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestBypass combines foreign rules with a ruleset that redirects packets whose destination port is
// 80.
func TestBypass(t *testing.T) {
	own := ruleset(base(rules.NAT, rules.Output, -100, when(redirect(15001), tcp, toPort(80))))
	raw := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Output, -300, list...)
	}
	nat := func(list ...rules.Rule) rules.Chain {
		return base(rules.NAT, rules.Output, -150, list...)
	}
	unknown := rules.Unknown{Text: "a word", Effect: rules.Reads}
	chance := rules.Unknown{Text: "chance", Effect: rules.ReadsVarying}
	for _, row := range []struct {
		name   string
		others rules.Chain
		want   string // part of the rule by which packets bypass the proxy, empty for no bypass
		// undecided is a part of the undecided condition's text, or empty if nothing is undecided.
		undecided string
	}{
		{name: "no rule", others: raw()},
		{
			name: "the traffic is not tracked", others: raw(when(rules.Notrack{}, tcp, toPort(80))),
			want: "notrack",
		},
		{name: "other traffic is not tracked", others: raw(when(rules.Notrack{}, tcp, toPort(81)))},
		{name: "the traffic is dropped", others: raw(when(rules.Drop, tcp, toPort(80)))},
		{
			name:   "untracked traffic is dropped",
			others: raw(when(rules.Notrack{}, tcp, toPort(80)), when(rules.Drop, tcp)),
		},
		{
			name:   "the traffic is accepted in an earlier chain",
			others: nat(when(rules.Accept, tcp, toPort(80))),
		},
		{name: "more traffic is redirected", others: nat(when(redirect(15001), tcp))},
		{
			name:   "the traffic is redirected to another port",
			others: nat(when(redirect(9), tcp)),
			want:   ":9",
		},
		{
			name:   "an unknown condition selects the traffic",
			others: raw(when(rules.Notrack{}, tcp, toPort(80), unknown)), undecided: "a word",
		},
		{
			name:   "random packets are not tracked",
			others: raw(when(rules.Notrack{}, tcp, toPort(80), chance)), want: "notrack",
		},
		{
			name:      "an unknown expression may change the traffic",
			others:    raw(when(rules.Accept, tcp, toPort(80), rules.Unknown{Text: "anything"})),
			undecided: "anything",
		},
		{
			name:   "an unknown condition selects other traffic",
			others: raw(when(rules.Notrack{}, tcp, toPort(81), unknown)),
		},
		{
			name:   "an unknown condition determines whether the traffic is dropped",
			others: raw(when(rules.Drop, tcp, toPort(80), unknown)),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			live := own
			live.Tables = append([]rules.Table{{
				Family: rules.IPv4, Name: "others", Chains: []rules.Chain{row.others},
			}}, own.Tables...)
			r := diff.Bypass(own, live, diff.Options{})
			decided := ""
			for _, c := range r.Classes {
				if c.Outcome.Right.Decided != nil {
					decided += c.Outcome.Right.Decided.String()
				}
			}
			if (row.want != "") != (len(r.Classes) > 0) || !strings.Contains(decided, row.want) {
				t.Errorf("%d classes of packets bypass the proxy, by the rules %q, want by %q",
					len(r.Classes), decided, row.want)
			}
			description := ""
			for _, u := range r.Undecided {
				description += u.Text
			}
			if (row.undecided != "") != (len(r.Undecided) > 0) ||
				!strings.Contains(description, row.undecided) {
				t.Errorf("undecided %q, want %q", description, row.undecided)
			}
		})
	}
}

// TestBypassWithoutAnotherListener verifies that Bypass does not assume that a foreign tproxy rule
// finds a listener if the proxy listens.
func TestBypassWithoutAnotherListener(t *testing.T) {
	const escape = 0x539
	own := mangleIn(when(rules.Return, marked(escape, everyBit)),
		when(rules.TProxyDrop{Port: 15006}, tcp))
	foreign := base(rules.Filter, rules.Prerouting, -160,
		rules.Rule{
			Matches: []rules.Match{tcp},
			Actions: []rules.Action{rules.TProxy{Port: 9999}, rules.Accept},
		},
		when(setMark(escape, everyBit), tcp))
	r := diff.Bypass(ruleset(own), ruleset(foreign, own), diff.Options{})
	if len(r.Classes) == 0 {
		t.Fatal("no packet bypasses the proxy, want the packets without a listener on port 9999")
	}
	if got := r.Classes[0].Witness.MissingListeners; got != "9999" {
		t.Errorf("witness without the listeners %q, want 9999", got)
	}
}
