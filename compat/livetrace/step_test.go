package livetrace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// Path shows the conntrack state, the mark and the conntrack zone in the lines where they change.
func TestPathShowsChanges(t *testing.T) {
	chain := rules.Chain{
		Name: "out", Base: &rules.Base{Hook: rules.Output, Priority: -300},
		Rules: []rules.Rule{
			{Actions: []rules.Action{rules.SetZone{Zone: 5}}},
			{Actions: []rules.Action{rules.SetZone{Zone: 6}}}, // the zone is already assigned
			{Actions: []rules.Action{rules.SetMark{Value: 7, Mask: 0xffffffff}}},
			{Actions: []rules.Action{rules.Accept}},
		},
	}
	table := rules.Table{Name: "x"}
	events := []trace.Event{{}, {}, {Mark: 7}, {Mark: 7, HasState: true, State: rules.New}}
	var o livetrace.Observation
	for i, e := range events {
		o.Steps = append(o.Steps, livetrace.Step{
			Step:  rules.Step{ChainRef: rules.ChainRef{Table: &table, Chain: &chain}, Index: i},
			Event: e, Hook: rules.Output,
		})
	}
	var got []string
	for _, line := range o.Path() {
		_, changes, _ := strings.Cut(line, " [")
		got = append(got, changes)
	}
	want := []string{"zone 5]", "", "mark 0x7]", "ct state new]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
