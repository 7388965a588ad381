package livetrace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// compare predicts the path of the packet with package diff, and compares the observed path with
// the prediction. It sets Differences if the paths differ, or NotCompared if it cannot compare the
// paths.
func (o *Observation) compare(rs *rules.Ruleset, options Options) {
	if o.Packet.Hook == rules.Output && !options.OwnerKnown {
		o.NotCompared = "the owner of the socket is not known"
		return
	}
	evaluated := withoutTraceMarks(rs)
	o.Predicted = diff.ExplainWithin(&evaluated, o.Packet, options.Budget)
	switch {
	case o.Predicted.Exhausted != "":
		o.NotCompared = "the prediction takes too much work: " + o.Predicted.Exhausted
		return
	case o.Predicted.Outcome.Undecided != "":
		o.NotCompared = "the model cannot predict: " + o.Predicted.Outcome.Undecided
		return
	case len(o.Predicted.Uncertain) > 0:
		o.NotCompared = "the model cannot predict the path: " + o.Predicted.Uncertain[0]
		return
	case len(o.Predicted.Alternatives) > 0:
		o.NotCompared = "the path depends on chance"
		return
	}
	predicted, observed := o.predictedPath(), o.observedPath()
	for i := range max(len(predicted), len(observed)) {
		model, kernel := ruleAt(predicted, i), ruleAt(observed, i)
		if model == kernel {
			continue
		}
		switch {
		case options.GroupUnknown:
			o.NotCompared = "the group of the socket is not known"
		case setsTrace(o.Predicted):
			o.NotCompared = "a rule sets nftrace, after which the kernel may report no further rules"
		case o.mayLackEvents():
			o.NotCompared = "after NAT, the events of the two backends cannot be assigned to one" +
				" packet"
		case len(o.Predicted.Assumed) > 0:
			o.NotCompared = "the path may depend on a property of the host that is not known; assumed: " +
				o.Predicted.Assumed[0]
		default:
			difference := fmt.Sprintf("rule %d of the path: the model predicted %s, the kernel ran %s",
				i+1, model, kernel)
			if o.Uncertain = strings.HasPrefix(kernel, legacyOrigin); o.Uncertain {
				difference += " (a rule with the target NFLOG or LOG can forge this report)"
			}
			o.Differences = append(o.Differences, difference)
		}
		return
	}
}

// mayLackEvents reports whether a [trace.Collector] may have assigned the events of one packet to
// two packets. The log of iptables-legacy contains no ID of the packet. After NAT, the collector
// therefore recognizes only TCP packets, by their header.
func (o *Observation) mayLackEvents() bool {
	var hasLegacy, hasNFT, isTranslated bool
	add := func(s rules.Step) {
		if s.Table == nil {
			return
		}
		if compat.IsLegacyTable(s.Table) {
			hasLegacy = true
		} else {
			hasNFT = true
		}
		if s.Chain == nil || s.Index < 0 {
			return
		}
		for _, a := range s.Rule().Actions {
			switch a.(type) {
			case rules.RedirectTo, rules.DNATTo, rules.DNATPort:
				isTranslated = true
			}
		}
	}
	for _, s := range o.Steps {
		add(s.Step)
	}
	for _, pass := range o.Predicted.Passes {
		for _, s := range pass.Steps {
			add(s)
		}
	}
	return o.Packet.Protocol != rules.TCP && hasLegacy && hasNFT && isTranslated
}

// setsTrace reports whether a rule of the path sets nftrace. The kernel may report no rules after
// such a rule.
func setsTrace(path rules.Trace) bool {
	for _, pass := range path.Passes {
		for _, s := range pass.Steps {
			if slices.ContainsFunc(s.Rule().Actions, func(a rules.Action) bool {
				u, ok := a.(rules.Unknown)
				return ok && u.State == rules.TraceState
			}) {
				return true
			}
		}
	}
	return false
}

// ruleAt returns the rule with the index in the path, or "no further rule" after the end of the
// path.
func ruleAt(path []string, i int) string {
	if i < len(path) {
		return path[i]
	}
	return "no further rule"
}

// isComparable reports whether the compared paths include the rules of the base chain: the chain
// must be at prerouting or output, and the kernel must trace packets of the protocol there.
func (o *Observation) isComparable(b *rules.Base) bool {
	return b != nil && (b.Hook == rules.Prerouting || b.Hook == rules.Output) &&
		(o.Packet.Protocol == rules.TCP || o.markedBeforeConntrack ||
			b.Position() > rules.ConntrackPriority)
}

// nftPosition returns the position of a rule of nf_tables as text.
func nftPosition(f rules.Family, table, chain string, h rules.Handle) string {
	return fmt.Sprintf("%s %s %s handle %d", f, table, chain, h)
}

// predictedPath returns the positions of the predicted rules that the kernel would report.
func (o *Observation) predictedPath() []string {
	var path []string
	for _, pass := range o.Predicted.Passes {
		for _, s := range pass.Steps {
			switch {
			case !o.isComparable(s.Base) || compat.JumpsToTraceChain(s.Rule()) || isUnmatched(s):
			case compat.IsLegacyTable(s.Table):
				path = append(path,
					legacyPosition(s.Table.Family, s.Table.Name, s.Chain.Name, s.Index+1))
			default:
				path = append(path,
					nftPosition(s.Table.Family, s.Table.Name, s.Chain.Name, s.Rule().Handle))
			}
		}
	}
	// The model represents a rule with a map by several rules with the same handle.
	return slices.Compact(path)
}

// isUnmatched reports whether the kernel does not report the rule, because the evaluation of the
// rule ended early. The kernel reports a TPROXY rule even if the target drops the packet.
func isUnmatched(s rules.Step) bool {
	_, drops := s.Stopped.(rules.TProxyDrop)
	return s.Stopped != nil && !drops
}

// endedWithoutEffect reports whether the kernel reports no verdict for the matching rule, although
// the model's rule has a verdict or NAT. This happens if a map has the verdict "continue" for the
// packet, or if NAT is for the other family. The model has no rule for these cases.
func endedWithoutEffect(s Step) bool {
	return s.Event.Verdict == trace.Continue && s.Index >= 0 &&
		slices.ContainsFunc(s.Rule().Actions, func(a rules.Action) bool {
			switch a.(type) {
			case rules.Verdict, rules.Jump, rules.DNATTo, rules.DNATPort, rules.SNATTo,
				rules.RedirectTo:
				return true
			}
			return false
		})
}

// observedPath returns the positions of the observed rules that package diff can predict.
func (o *Observation) observedPath() []string {
	var path []string
	for _, s := range o.Steps {
		switch e := s.Event; {
		case e.Kind != trace.Rule || !o.isComparable(s.Base) || endedWithoutEffect(s):
		case e.Number == 0:
			path = append(path, nftPosition(e.Family, e.Table, e.Chain, e.Handle))
		case s.Index >= 0 || s.Chain == nil:
			path = append(path, legacyPosition(e.Family, e.Table, e.Chain, e.Number))
		}
	}
	return slices.Compact(path)
}
