package diff

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// unknownIn returns the name of an unsupported match of a rule that may have a side effect, or an
// empty string.
func unknownIn(r *rules.Rule) string {
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok && !u.Effect.IsCondition() {
			return u.Text
		}
	}
	return ""
}

// evaluateUnknown returns the packets that meet an unknown condition, and records the packets for
// which it is evaluated.
func (v *visit) evaluateUnknown(u rules.Unknown, f flow, packets set, part rulePart) set {
	asked := v.unknownVariable(u, f, part)
	v.draw(asked.key, v.or(v.summary.drawn[asked.key], packets))
	v.recordCondition(u, asked.key, packets)
	return v.variable(asked)
}

// unknownVariable returns the variable of an unsupported condition of the current rule. The same
// rule of the other side has the same variable for packets with the same inputs.
func (v *visit) unknownVariable(u rules.Unknown, f flow, part rulePart) variable {
	of, apart := "", u.Data == rules.NoData || v.history.isApart(u)
	if apart {
		of = v.side
	}
	found := variable{
		key: strings.Join([]string{
			v.place.key(), v.ruleKey(), strconv.Itoa(int(part)), u.Text, u.Data, of,
			strconv.Itoa(v.number), v.source, v.inputs(u, f),
		}, "\x01"),
		text: u.Text, step: v.step(), kind: unknownBit,
	}
	switch {
	case u.Effect == rules.ReadsVarying && (v.one != nil || !apart && !v.mixesDraws),
		u.Effect == rules.ReadsHistory && v.one != nil: // both results are possible for one packet
		found.kind = draw
	}
	return found
}

// inputs returns a key of the inputs of an unsupported condition, which differs for packets with
// different inputs. It is empty for packets that have not changed since they entered.
func (v *visit) inputs(u rules.Unknown, f flow) string {
	if u.Effect == rules.ReadsVarying {
		return "" // a random number, or a state of its own
	}
	reads := func(inputs rules.Inputs) bool { return u.Ignores&inputs != inputs }
	seen := v.view(&f.progress)
	var parts []any
	if reads(rules.ConnectionInput) && (seen.before || f.tracking != tracked || f.zone != 0 ||
		f.helper != "") {
		parts = append(parts, "connection", seen.before, f.tracking, f.zone, f.helper)
	}
	translated := f.target != (target{}) || f.source != "" || f.tproxy.taken
	if reads(rules.ConnectionInput | rules.HeaderInput | rules.InterfaceInput) {
		if seen.translated != (v.hookHere() == rules.Postrouting || seen.second) {
			parts = append(parts, "translated")
		}
		if translated {
			parts = append(parts, "header", f.target, f.source, f.snat, f.tproxy)
		}
	}
	// Conntrack helpers run at the end of postrouting, before packets arrive on lo.
	if reads(rules.ContentsInput) && (seen.second || seen.leaving) &&
		(translated || f.tracking != tracked || f.helper != "") {
		parts = append(parts, "contents", f.target, f.source, f.snat, f.tracking, f.helper)
	}
	if reads(rules.NATInput) && v.setsUpNAT {
		parts = append(parts, "NAT")
	}
	if reads(rules.InterfaceInput) && (f.toLoopback || f.leavesLoopback) {
		parts = append(parts, "interface", f.toLoopback)
	}
	if reads(rules.MarkInput) && f.mark != v.marks.packet {
		parts = append(parts, "mark", *f.mark)
	}
	if reads(rules.ConntrackMarkInput) && f.connection != v.marks.connection {
		parts = append(parts, "connection mark", *f.connection)
	}
	if parts == nil {
		return ""
	}
	v.meter.charge(textSteps)
	return fmt.Sprint(parts...)
}

// ruleKey identifies the current rule. It is equal for the same rule of the other side: it consists
// of the chain, the text, and a number for rules with equal text.
func (v *visit) ruleKey() string {
	keys, ok := v.ruleKeys[v.chain.Chain]
	if !ok {
		keys = make([]string, len(v.chain.Chain.Rules))
		count := map[string]int{}
		for i := range keys {
			r := &v.chain.Chain.Rules[i]
			v.meter.step()
			if r.UsesUnknown() {
				keys[i] = v.textKey(r, count)
			}
		}
		lazySet(&v.ruleKeys, v.chain.Chain, keys)
	}
	return keys[v.run.first]
}

// textKey returns a key that differs from the keys of rules of other chains or with other text.
func (v *visit) textKey(r *rules.Rule, count map[string]int) string {
	text := r.String() // which may hold a list of any length
	v.meter.charge(len(text))
	if len(text) > sha256.Size {
		sum := sha256.Sum256([]byte(text))
		text = string(sum[:])
	}
	key := fmt.Sprint(v.chain.Table.Family, " ", v.chain.Table.Name, " ", v.chain.Chain.Name, " ",
		text, " ", count[text])
	count[text]++
	v.meter.alloc(int64(len(key)+len(text)) + 64)
	return key
}

// undecided ends the evaluation of packets as undecided.
func (v *visit) undecided(text string, packets ...flow) {
	u := unknown{text, *v.step()}
	i, ok := v.unknownIndex[u]
	if !ok {
		v.meter.alloc(256)
		v.unknown = append(v.unknown, u)
		i = len(v.unknown)
		lazySet(&v.unknownIndex, u, i)
	}
	if v.one != nil && len(packets) > 0 {
		last := len(v.summary.events) - 1
		if last < 0 || v.summary.events[last].index != v.run.first ||
			v.summary.events[last].call != nil {
			for _, f := range packets {
				v.note(event{packets: f.packets, index: v.run.first})
			}
		}
	}
	for _, f := range packets {
		f.progress = progress{undecided: i}
		v.add(&v.summary.ended, f)
	}
}

// translationBy returns the name of a translation of sources, which is equal on both sides only if
// the new source is the same. The name begins with the text and translationEnd.
func (v *visit) translationBy(a rules.Unknown) string {
	if a.Data == rules.NoData {
		return a.Text + translationEnd + v.side
	}
	return a.Text + translationEnd + a.Data
}

const translationEnd = "\x01"

// unknownAction evaluates an unsupported action; at is as of act. It returns the packets for which
// the rule continues, or nil if they are undecided.
func (v *visit) unknownAction(a rules.Unknown, packets []flow, at int, part rulePart) []flow {
	meeting := func(u rules.Unknown) []flow {
		on, others := v.require(u, packets, part)
		v.stopped(at, others, a)
		return on
	}
	switch a.Effect {
	case rules.Reads, rules.ReadsVarying, rules.ReadsHistory:
		return meeting(a)
	case rules.ReadsAndWrites:
		v.record(a, packets, part)
		u := a
		u.Effect = rules.ReadsHistory
		return meeting(u)
	case rules.Writes:
		v.record(a, packets, part)
		return packets
	case rules.WritesMark, rules.WritesConntrackMark:
		// The action may also have ended the rule.
		on := meeting(rules.Unknown{
			Text: a.Text, Data: a.Data, Effect: rules.Reads, Ignores: a.Ignores,
		})
		for i := range on {
			value := v.unknownVariable(a, on[i], writtenPart(part))
			v.recordCondition(a, value.key, on[i].packets)
			written := v.marks.unknown(value)
			seen := v.view(&on[i].progress)
			if a.Effect == rules.WritesMark {
				on[i].mark = written
			} else {
				on[i].connection = v.written(on[i], &seen, written, on[i].connection)
			}
		}
		return on
	case rules.TranslatesSource:
		v.translateSource(packets, v.translationBy(a), netip.Addr{})
		return nil
	}
	v.undecided(a.Text, packets...)
	return nil
}
