package main

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/colour"
)

// traceText writes the way of the packet for people.
func (s *system) traceText(packet rules.Packet, trace rules.Trace) string {
	b := new(strings.Builder)
	fmt.Fprintln(b, s.colour.Paint(colour.Bold, packet.String()))
	for _, pass := range trace.Passes {
		fmt.Fprintf(b, "  %s\n", hookText(pass.Packet))
		chain := ""
		for _, step := range pass.Steps {
			if name := chainName(step); name != chain {
				chain = name
				fmt.Fprintf(b, "    chain %s\n", chain)
			}
			fmt.Fprintf(b, "      rule %-3d %s\n", step.Index+1, stepText(step))
		}
		if len(pass.Steps) == 0 {
			fmt.Fprintln(b, "    no rule matches")
		}
	}
	fmt.Fprintln(b, "  "+s.colour.Paint(colour.Bold, fateSentence(trace.Fate)))
	return b.String()
}

func chainName(step rules.Step) string {
	return step.Table.Family.String() + " " + step.Table.Name + " " + step.Chain.Name
}

// hookText names the hook and the device there.
func hookText(p rules.Packet) string {
	if p.Hook == rules.Output {
		return "output, to " + p.OutInterface
	}
	return p.Hook.String() + ", from " + p.InInterface
}

func stepText(step rules.Step) string {
	text := step.Rule().String()
	if comment := step.Rule().Comment; comment != "" {
		text += "  # " + comment
	}
	if step.Stopped != nil {
		text += "  (ended at " + step.Stopped.String() + ": no listener)"
	}
	return text
}

// fateSentence makes a sentence of the fate.
func fateSentence(f rules.Fate) string {
	if !f.Captured() && !f.Dropped && !f.Rerouted && f.Undecided == "" {
		return "The packet " + f.String() + "."
	}
	return "The packet is " + f.String() + "."
}

// The JSON form of an explanation. The help topic "json" describes it.
type (
	explained struct {
		Packet string       `json:"packet"`
		Fate   jsonFate     `json:"fate"`
		Passes []jsonPassed `json:"passes"`
	}
	jsonFate struct {
		Text           string `json:"text"`
		Captured       bool   `json:"captured"`
		Dropped        bool   `json:"dropped"`
		Redirect       uint16 `json:"redirect,omitempty"`
		DNAT           uint16 `json:"dnat,omitempty"`
		TProxy         uint16 `json:"tproxy,omitempty"`
		Rerouted       bool   `json:"rerouted,omitempty"`
		Zone           uint16 `json:"zone,omitempty"`
		Mark           string `json:"mark"`
		ConnectionMark string `json:"connectionMark"`
		Undecided      string `json:"undecided,omitempty"`
	}
	jsonPassed struct {
		Hook   string     `json:"hook"`
		Packet string     `json:"packet"`
		Steps  []jsonStep `json:"steps"`
	}
	jsonStep struct {
		Family  string `json:"family"`
		Table   string `json:"table"`
		Chain   string `json:"chain"`
		Rule    int    `json:"rule"` // counted from 1
		Text    string `json:"text"`
		Comment string `json:"comment,omitempty"`
		Stopped string `json:"stopped,omitempty"`
	}
)

func toExplained(packet rules.Packet, trace rules.Trace) explained {
	return explained{
		Packet: packet.String(),
		Fate:   jsonFateOf(trace.Fate),
		Passes: list(trace.Passes, func(pass *rules.Pass) jsonPassed {
			return jsonPassed{pass.Packet.Hook.String(), pass.Packet.String(), list(pass.Steps, jsonStepOf)}
		}),
	}
}

func jsonFateOf(f rules.Fate) jsonFate {
	return jsonFate{
		Text: fateSentence(f), Captured: f.Captured(), Dropped: f.Dropped, Redirect: f.Redirect, DNAT: f.DNATPort, TProxy: f.TProxy,
		Rerouted: f.Rerouted, Zone: f.Zone, Mark: hex(f.Mark), ConnectionMark: hex(f.ConntrackMark), Undecided: f.Undecided,
	}
}

func jsonStepOf(step *rules.Step) jsonStep {
	j := jsonStep{
		Family: step.Table.Family.String(), Table: step.Table.Name, Chain: step.Chain.Name, Rule: step.Index + 1,
		Text: step.Rule().String(), Comment: step.Rule().Comment,
	}
	if step.Stopped != nil {
		j.Stopped = step.Stopped.String()
	}
	return j
}
