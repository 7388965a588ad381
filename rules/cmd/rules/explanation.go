package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
)

// traceText formats the path of the packet for people.
func (s *system) traceText(packet rules.Packet, trace rules.Trace) string {
	b := new(strings.Builder)
	fmt.Fprintln(b, s.paint(color.Bold, packet.String()))
	if trace.Exhausted != "" {
		fmt.Fprintln(b, "  "+s.paint(color.Bold, "Cannot decide: "+trace.Exhausted+
			"; --max-time and --max-memory allow more."))
		return b.String()
	}
	for _, pass := range trace.Passes {
		fmt.Fprintf(b, "  %s\n", hookText(pass.Packet))
		writePass(b, pass)
	}
	fmt.Fprintln(b, "  "+s.paint(color.Bold, rules.Printable(outcomeSentence(trace.Outcome))))
	if sentence := deliveryText(trace); sentence != "" {
		fmt.Fprintln(b, "  "+sentence)
	}
	for _, step := range trace.UnknownAt {
		fmt.Fprintf(b, "  Unknown in chain %s rule %d: %s\n", chainName(step.ChainRef),
			step.Number(), stepText(step))
	}
	for _, property := range trace.Assumed {
		fmt.Fprintln(b, "  Assumed: "+property)
	}
	for _, o := range trace.Alternatives {
		fmt.Fprintln(b, "  By chance: "+rules.Printable(outcomeSentence(o)))
	}
	if len(trace.DependsOn) > 0 {
		fmt.Fprintln(b, "  This depends on: "+rules.Printable(strings.Join(trace.DependsOn, "; ")))
	}
	return b.String()
}

// writePass writes the rules that matched at a hook, and the effects of policies and of the kernel.
func writePass(b *strings.Builder, pass rules.Pass) {
	notes := pass.Notes // in the order of the steps
	writeNotes := func(before int) {
		for ; len(notes) > 0 && notes[0].Before <= before; notes = notes[1:] {
			fmt.Fprintf(b, "    %s\n", rules.Printable(notes[0].String()))
		}
	}
	chain := ""
	for i, step := range pass.Steps {
		writeNotes(i)
		if name := chainName(step.ChainRef); name != chain {
			chain = name
			fmt.Fprintf(b, "    chain %s\n", chain)
		}
		fmt.Fprintf(b, "      rule %-3d %s\n", step.Number(), stepText(step))
	}
	writeNotes(len(pass.Steps))
	switch {
	case pass.Truncated:
		fmt.Fprintf(b, "    and more: only the first %d rules that match are listed\n",
			len(pass.Steps))
	case len(pass.Steps) == 0 && len(pass.Notes) == 0:
		fmt.Fprintln(b, "    no rule matches")
	}
}

// chainName returns the name of a chain, with its table, as printable text.
func chainName(c rules.ChainRef) string {
	return rules.Printable(c.Table.Family.String() + " " + c.Table.Name + " " + c.Chain.Name)
}

// hookText returns the hook and the interface of a packet.
func hookText(p rules.Packet) string {
	if p.Hook == rules.Output || p.Hook == rules.Postrouting {
		return p.Hook.String() + ", to " + p.OutInterface
	}
	return p.Hook.String() + ", from " + p.InInterface
}

// stepText returns the rule of a step, its comment, and the action at which it ended early, as
// printable text.
func stepText(step rules.Step) string {
	line := shorten(step.Rule().String())
	if comment := step.Rule().Comment; comment != "" {
		line += "  # " + comment
	}
	if step.Stopped != nil {
		line += "  (ended at " + step.Stopped.String() + stoppedText(step.Stopped) + ")"
	}
	return rules.Printable(line)
}

// stoppedText returns the reason why a rule ended at the action.
func stoppedText(a rules.Action) string {
	switch a.(type) {
	case rules.TProxy, rules.TProxyDrop:
		return ": no listener"
	case rules.Require:
		return ", which does not match"
	case rules.Unknown:
		return ", whose result is not known"
	}
	return ": no connection"
}

// maxRuleBytes is the length to which the text output shortens a rule, because a rule may contain a
// list of addresses of any length.
const maxRuleBytes = 2000

// shorten returns the text of a rule. It omits the end of a text that is longer than maxRuleBytes.
func shorten(text string) string {
	if len(text) <= maxRuleBytes {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes more)", strings.ToValidUTF8(text[:maxRuleBytes], ""),
		len(text)-maxRuleBytes)
}

// outcomeSentence returns a sentence that describes the outcome.
func outcomeSentence(o rules.Outcome) string {
	if !o.Captured() && !o.Dropped && !o.Rerouted && o.Undecided == "" {
		return "The packet " + o.String() + "."
	}
	return "The packet is " + o.String() + "."
}

// The JSON form of an explanation. The help topic "json" describes it.
type (
	explanation struct {
		Packets []packetExplanation `json:"packets"`
	}
	packetExplanation struct {
		Packet       string        `json:"packet"`
		Outcome      jsonOutcome   `json:"outcome"`
		Alternatives []jsonOutcome `json:"alternatives,omitempty"`
		DependsOn    []string      `json:"dependsOn,omitempty"`
		UnknownAt    []jsonStep    `json:"unknownAt,omitempty"`
		Assumed      []string      `json:"assumed,omitempty"`
		Delivery     string        `json:"delivery,omitempty"`
		Passes       []jsonPass    `json:"passes"`
	}
	jsonOutcome struct {
		Text           string `json:"text"`
		Captured       bool   `json:"captured"`
		Dropped        bool   `json:"dropped"`
		Redirect       uint16 `json:"redirect,omitempty"`
		RedirectLast   uint16 `json:"redirectLast,omitempty"`
		ToHost         bool   `json:"toHost,omitempty"`
		Rejected       string `json:"rejected,omitempty"`
		DNAT           uint16 `json:"dnat,omitempty"`
		DNATLast       uint16 `json:"dnatLast,omitempty"`
		DNATAddr       string `json:"dnatAddress,omitempty"`
		DNATAddrLast   string `json:"dnatAddressLast,omitempty"`
		SNATAddr       string `json:"snatAddress,omitempty"`
		SNAT           string `json:"snat,omitempty"`
		TProxyAddr     string `json:"tproxyAddress,omitempty"`
		Untracked      bool   `json:"untracked,omitempty"`
		TProxy         uint16 `json:"tproxy,omitempty"`
		Rerouted       bool   `json:"rerouted,omitempty"`
		LeavesLoopback bool   `json:"leavesLoopback,omitempty"`
		Zone           uint16 `json:"zone,omitempty"`
		Helper         string `json:"helper,omitempty"`
		Mark           string `json:"mark"`
		ConnectionMark string `json:"connectionMark"`
		Undecided      string `json:"undecided,omitempty"`
		UnknownMarks   string `json:"unknownMarks,omitempty"`
	}
	jsonPass struct {
		Hook   string     `json:"hook"`
		Packet string     `json:"packet"`
		Steps  []jsonStep `json:"steps"`
		More   bool       `json:"moreSteps,omitempty"`
		Notes  []string   `json:"notes,omitempty"`
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

func (explanation) kind() string { return "Explanation" }

// packetExplanationOf returns the JSON form of a trace.
func packetExplanationOf(packet rules.Packet, trace rules.Trace) packetExplanation {
	return packetExplanation{
		Packet:  packet.String(),
		Outcome: jsonOutcomeOf(trace.Outcome),
		Alternatives: convertEach(trace.Alternatives, func(o *rules.Outcome) jsonOutcome {
			return jsonOutcomeOf(*o)
		}),
		DependsOn: trace.DependsOn,
		UnknownAt: convertEach(trace.UnknownAt, jsonStepOf),
		Assumed:   trace.Assumed,
		Delivery:  deliveryName(trace),
		Passes: convertEach(trace.Passes, func(pass *rules.Pass) jsonPass {
			return jsonPass{
				pass.Packet.Hook.String(), pass.Packet.String(),
				convertEach(pass.Steps, jsonStepOf), pass.Truncated,
				convertEach(pass.Notes, func(n *rules.Note) string { return n.String() }),
			}
		}),
	}
}

// jsonOutcomeOf returns the JSON form of an outcome.
func jsonOutcomeOf(o rules.Outcome) jsonOutcome {
	address := func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	return jsonOutcome{
		Text: outcomeSentence(o), Captured: o.Captured(), Dropped: o.Dropped, Rejected: o.Rejected,
		Redirect: o.Redirect, RedirectLast: o.RedirectLast, ToHost: o.ToHost,
		DNAT: o.DNATPort, DNATLast: o.DNATPortLast, DNATAddr: address(o.DNATAddr),
		DNATAddrLast: address(o.DNATAddrLast), SNATAddr: address(o.SNATAddr), SNAT: o.SNAT,
		TProxy: o.TProxy, TProxyAddr: address(o.TProxyAddr), Untracked: o.Untracked,
		UnknownMarks: o.UnknownMarks,
		Rerouted:     o.Rerouted, LeavesLoopback: o.LeavesLoopback,
		Zone: o.Zone, Helper: o.Helper, Mark: hex(o.Mark),
		ConnectionMark: hex(o.ConntrackMark), Undecided: o.Undecided,
	}
}

// jsonStepOf returns the JSON form of a step.
func jsonStepOf(step *rules.Step) jsonStep {
	j := jsonStep{
		Family: step.Table.Family.String(), Table: step.Table.Name, Chain: step.Chain.Name,
		Rule: step.Number(),
		Text: step.Rule().String(), Comment: step.Rule().Comment,
	}
	if step.Stopped != nil {
		j.Stopped = step.Stopped.String()
	}
	return j
}
