package diff

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// sideEffectText returns the text of the first match of a rule that is unsupported and may have a
// side effect, or an empty string.
func sideEffectText(r *rules.Rule) string {
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok && !u.Effect.IsCondition() {
			return u.Text
		}
	}
	return ""
}

// evaluateUnknown returns the packets that meet an unknown condition. It records that the condition
// is evaluated for the given packets of the flow.
func (e *evaluator) evaluateUnknown(u rules.Unknown, f flow, packets set, part rulePart) set {
	packets = e.and(f.packets, packets)
	condition := e.unknownVariable(u, f, part)
	e.recordEvaluation(condition.key, packets)
	e.recordCondition(u, condition.key, packets)
	return e.variable(condition)
}

// unknownVariable returns the variable of an unsupported condition of the current rule. The same
// rule of the other side has the same variable for packets with the same inputs, unless the
// condition depends on data that was not read or on a state that differs between the sides.
func (e *evaluator) unknownVariable(u rules.Unknown, f flow, part rulePart) variable {
	differs := e.sideOf(u) != ""
	compared := u
	if e.comparesTexts && randomFormOf(u) == expressionForm && !differs {
		compared.Data = ""
	}
	found := variable{
		key: strings.Join([]string{
			e.expressionKey(compared, part), strconv.Itoa(e.callNumber), e.snatAction,
			e.inputKey(u, f),
		}, keySeparator),
		text: u.Text, step: e.step(), kind: unknownBit,
	}
	e.meter.charge(len(found.key))
	switch {
	case u.Effect == rules.ReadsVarying && !differs && !e.mixesRandomForms:
		found.kind = random
		storeIn(&e.randomKeys, found.key, true)
	case e.single != nil && (u.Effect == rules.ReadsVarying || u.Effect == rules.ReadsHistory):
		found.kind = random // both results are possible for one packet
	}
	return found
}

// sideOf returns the side of the ruleset if the same expression may have another result on the
// other side: it depends on data that was not read, or on a state that differs between the sides.
// Otherwise it returns an empty string.
func (e *evaluator) sideOf(u rules.Unknown) string {
	if u.Data == rules.NoData || e.shared.differs(u) {
		return e.side
	}
	return ""
}

// expressionKey identifies an expression of the current rule. It is equal for the same expression
// of the other side, unless the results of the two may differ (see sideOf).
func (e *evaluator) expressionKey(u rules.Unknown, part rulePart) string {
	return strings.Join([]string{
		e.position.key(), e.ruleKey(), strconv.Itoa(int(part)), u.Text, u.Data, e.sideOf(u),
	}, keySeparator)
}

// inputKey returns a key of the inputs of an unsupported condition. Packets with different inputs
// have different keys. An empty key means that no input has changed since the packets entered, or
// that the condition has no inputs.
func (e *evaluator) inputKey(u rules.Unknown, f flow) string {
	if u.Effect == rules.ReadsVarying {
		return "" // a random number, or a state that only this condition uses
	}
	reads := func(inputs rules.Inputs) bool { return u.Ignores&inputs != inputs }
	view := e.view(&f.progress)
	var parts []any
	if reads(rules.ConnectionInput) &&
		(view.beforeConntrack || f.tracking != tracked || f.zone != 0 || f.helper != "") {
		parts = append(parts, "connection", view.beforeConntrack, f.tracking, f.zone, f.helper)
	}
	if reads(rules.ConnectionInput) && f.retracked {
		parts = append(parts, "retracked", f.retrackZone)
	}
	if reads(rules.ConnectionInput) && e.position.confirmed {
		parts = append(parts, "confirmed")
	}
	translated := f.target != (target{}) || f.snatAction != "" || f.tproxy.assigned
	if reads(rules.ConnectionInput | rules.HeaderInput | rules.InterfaceInput) {
		// At postrouting, and for packets that arrive on lo, all chains run after the translation.
		enteredTranslated := e.currentHook() == rules.Postrouting || view.loopbackArrival
		if view.translated && !enteredTranslated {
			parts = append(parts, "translated")
		}
		if view.sourceTranslated && view.atPostrouting {
			parts = append(parts, "source translated")
		}
		if translated {
			parts = append(parts, "header", f.target, f.snatAction, f.snat, f.tproxy)
		}
	}
	// Conntrack helpers run at the end of postrouting, before packets arrive on lo.
	if reads(rules.ContentsInput) && (view.loopbackArrival || view.atPostrouting) &&
		(translated || f.tracking != tracked || f.helper != "") {
		parts = append(parts, "contents", f.target, f.snatAction, f.snat, f.tracking, f.helper)
	}
	if f.headers != "" {
		parts = append(parts, "headers", f.headers)
	}
	if reads(rules.NATInput) && e.hasNATChain {
		parts = append(parts, "NAT")
	}
	if reads(rules.InterfaceInput) && (f.toLoopback || f.leavesLoopback) {
		parts = append(parts, "interface", f.toLoopback)
	}
	if reads(rules.MarkInput) && f.mark != e.marks.packet {
		parts = append(parts, "mark", *f.mark)
	}
	if reads(rules.ConntrackMarkInput) && f.connectionMark != e.marks.connection {
		parts = append(parts, "connection mark", *f.connectionMark)
	}
	if parts == nil {
		return ""
	}
	e.meter.charge(textSteps)
	text := fmt.Sprint(parts...)
	e.meter.charge(len(text))
	return text
}

// digest returns a digest of a text.
func (w *walk) digest(text string) string {
	w.meter.charge(len(text))
	sum := sha256.Sum256([]byte(text))
	w.meter.alloc(sha256.Size)
	return string(sum[:])
}

// ruleKey identifies the current rule. It is equal for the same rule of the other side: it consists
// of the chain, the text, and a number that distinguishes rules with equal text.
func (e *evaluator) ruleKey() string {
	return cached(&e.ruleKeys, e.chain.Chain, func() []string {
		keys := make([]string, len(e.chain.Chain.Rules))
		count, texts := map[string]int{}, newRuleWriter(e.meter)
		mayBeUnknown := inTuples(isUnknown)
		for i := range keys {
			r := &e.chain.Chain.Rules[i]
			e.meter.step()
			if ruleHasMatch(r, mayBeUnknown) {
				keys[i] = e.textKey(r, texts.setElements(r), count)
			}
		}
		return keys
	})[e.run.first]
}

// isUnknown reports whether a match is not supported, or looks up a list that is not part of the
// rules.
func isUnknown(m rules.Match) bool {
	switch m.(type) {
	case rules.Unknown, rules.MatchListed:
		return true
	}
	return false
}

// textKey returns the key of a rule. It differs from the keys of rules of other chains and of rules
// with another text or other elements of their named sets. count contains the number of earlier
// rules of the chain by text.
func (e *evaluator) textKey(r *rules.Rule, elements string, count map[string]int) string {
	text := r.String() + elements // may contain a list of any length
	e.meter.charge(len(text))
	if len(text) > sha256.Size {
		sum := sha256.Sum256([]byte(text))
		text = string(sum[:])
	}
	key := fmt.Sprint(chainKey(e.chain), " ", text, " ", count[text])
	count[text]++
	e.meter.alloc(int64(len(key)+len(text)) + entrySize)
	return key
}

// endUndecided ends the evaluation of packets as undecided.
func (e *evaluator) endUndecided(text string, packets ...flow) {
	u := unsupportedExpression{text, *e.step()}
	i, ok := e.unsupportedIndex[u]
	if !ok {
		e.meter.alloc(unsupportedSize)
		e.unsupported = append(e.unsupported, u)
		i = len(e.unsupported)
		storeIn(&e.unsupportedIndex, u, i)
	}
	if e.single != nil && len(packets) > 0 {
		// The explanation lists the rule as a step. Add an event unless evaluateFlow has added one.
		last := len(e.summary.events) - 1
		if last < 0 || e.summary.events[last].index != e.run.first ||
			e.summary.events[last].call != nil {
			for _, f := range packets {
				e.addEvent(event{packets: f.packets, index: e.run.first})
			}
		}
	}
	for _, f := range packets {
		f.progress = progress{undecided: i}
		e.add(&e.summary.ended, f)
	}
}

// unsupportedSize is the size of an unsupported expression in a list and in a map in bytes.
const unsupportedSize = 256

// translationName returns the name of an unsupported source translation. The names of two
// translations are equal only if the new source is the same. A name begins with the text of the
// action and keySeparator.
func (e *evaluator) translationName(a rules.Unknown) string {
	if a.Data == rules.NoData {
		return a.Text + keySeparator + e.side
	}
	return a.Text + keySeparator + a.Data
}

// evaluateUnknownAction evaluates an unsupported action (eventIndex: see evaluateActions). It
// returns the packets for which the rule continues, or nil if the evaluation has ended.
func (e *evaluator) evaluateUnknownAction(
	a rules.Unknown, packets []flow, eventIndex int, part rulePart,
) []flow {
	packetsMeeting := func(u rules.Unknown) []flow {
		continuing, others := e.require(u, packets, part)
		e.recordStop(eventIndex, others, a)
		return continuing
	}
	switch a.Effect {
	case rules.Reads, rules.ReadsVarying, rules.ReadsHistory:
		return packetsMeeting(a)
	case rules.ReadsAndWrites:
		e.recordWrite(a, packets, part)
		u := a
		u.Effect = rules.ReadsHistory
		return packetsMeeting(u)
	case rules.Writes:
		e.recordWrite(a, packets, part)
		return packets
	case rules.WritesHeader:
		return e.writeHeader(a, packets)
	case rules.WritesMark, rules.WritesConntrackMark:
		// It is unknown for which packets the action ends the rule. For the other packets, the
		// action writes the mark.
		continuing := packetsMeeting(rules.Unknown{
			Text: a.Text, Data: a.Data, Effect: rules.Reads, Ignores: a.Ignores,
		})
		for i := range continuing {
			f := &continuing[i]
			value := e.unknownVariable(a, *f, valuePart(part))
			e.recordCondition(a, value.key, f.packets)
			written := e.marks.unknownMark(value)
			if a.Effect == rules.WritesMark {
				f.mark = written
			} else {
				view := e.view(&f.progress)
				f.connectionMark = e.mergeByConnection(*f, &view, written, f.connectionMark)
			}
		}
		return continuing
	case rules.TranslatesSource:
		e.translateSource(packets, e.translationName(a), netip.Addr{})
		return nil
	}
	e.endUndecided(a.Text, packets...)
	return nil
}

// writeHeader records a change of a header field that the model does not represent, and returns the
// packets for which the rule continues.
func (e *evaluator) writeHeader(a rules.Unknown, packets []flow) []flow {
	base := e.position.chain.Chain.Base
	change := a.Text + keySeparator + a.Data
	if a.Data == rules.NoData {
		change += e.side
	}
	var changed flows
	for _, f := range packets {
		if a.State == rules.RoutedHeader && base.Type == rules.Route {
			var rerouted flow
			if rerouted, f = e.split(f, e.reroutedByHeader(f)); rerouted.packets != none {
				e.endUndecided(a.Text, rerouted)
			}
		}
		f.headers = e.digest(
			fmt.Sprintf("%q %q %d %q", f.headers, change, base.Hook, e.inputKey(a, f)))
		e.add(&changed, f)
	}
	return changed.list
}

// reroutedByHeader returns the packets that may take another route, or may be lost, if a chain of
// type route changes a field of their header (HeaderChangeReroutes). Other packets keep their
// route, because their destination and their mark selected it.
func (e *evaluator) reroutedByHeader(f flow) set {
	if f.mark != e.marks.packet {
		return all
	}
	packets := e.or(e.lostOnLoopback(f),
		e.and(e.or(e.is(user, value{}), e.selected()), e.isByAnotherRoute()))
	if e.single != nil {
		packets = e.or(packets, e.staysOnLink())
	}
	return packets
}

// isByAnotherRoute returns the packets whose interface does not follow from their destination and
// mark: they are sent over lo although neither routes them to lo, or over another interface
// although one of the two does. They may be copies (CopiesAreRoutedToTheGateway), or the sender has
// selected the interface.
func (e *evaluator) isByAnotherRoute() set {
	byLoopback := e.or(e.is(destinationType, number(rules.Local)), e.localMark(e.marks.packet))
	return e.xor(e.overLoopback, byLoopback)
}
