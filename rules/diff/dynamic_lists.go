package diff

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// listMatches returns the packets of a flow that meet a match on a list whose contents are unknown.
//
// If no rule of either side writes to the list, the result is a fact about the host. It is equal
// for all rules of both sides that look up the same fields of the packet.
func (e *evaluator) listMatches(m rules.MatchListed, f flow, packets set, part rulePart) set {
	positive := m
	positive.Not = false
	view := e.view(&f.progress)
	lookup := rules.Unknown{
		Text: positive.String(), Effect: rules.Reads, State: m.State, Ignores: listIgnores,
	}
	switch {
	case e.shared.written[m.State]:
		lookup.Data, lookup.Effect = m.Contents, rules.ReadsHistory
	case m.OtherFields && (view.loopbackArrival || f.mark != e.marks.packet):
		// The mark or the interface of the packet has changed. The lookup may use it, and may have
		// another result than a lookup before the change.
	default:
		return e.negateIf(m.Not, e.inList(positive, &view))
	}
	return e.negateIf(m.Not, e.evaluateUnknown(lookup, f, packets, part))
}

// listIgnores contains the inputs on which a lookup in a list does not depend.
const listIgnores = rules.ConnectionInput | rules.ConntrackMarkInput | rules.ContentsInput |
	rules.StateInput | rules.NATInput

// inList returns the packets whose fields are in the list. The result for the addresses after a
// translation is another variable than the result for the original addresses.
func (s *space) inList(m rules.MatchListed, v *view) set {
	lookup := func(key, text string) set {
		return s.variable(variable{key: key, text: text, kind: s.randomForSinglePacket(hostFact)})
	}
	key := fmt.Sprintf("list %q %q %q %q", m.State, m.List, m.Parts, m.Contents)
	if m.Source && v.snatAction != "" {
		return s.inListAfterSNAT(m, v, key)
	}
	original := lookup(key, m.String())
	if sourceChanged := s.sourceRetranslated(v); m.Source && sourceChanged != none {
		original = s.ifElse(sourceChanged, lookup(key+" source translated before", m.String()+
			" for the source to which earlier packets were translated"), original)
	}
	if !m.Destination {
		return original
	}
	changed, retranslated := s.not(s.sameDestination(v.target, target{})), none
	if v.target.kind == noTarget {
		changed = none
	}
	if v.translated && v.tracking != untracked {
		retranslated = s.minus(s.retranslated(), changed)
	}
	packets := original
	if changed != none {
		packets = s.ifElse(changed,
			lookup(fmt.Sprint(key, v.target), m.String()+" for the new destination"), packets)
	}
	if retranslated != none {
		packets = s.ifElse(retranslated,
			lookup(key+" translated before", m.String()+
				" for the destination to which earlier packets were sent"), packets)
	}
	return packets
}

// inListAfterSNAT returns the packets whose source, which a rule has translated, is in the list
// with the key. The result is known to be the result for the original packet only if the
// translation keeps the source.
func (s *space) inListAfterSNAT(m rules.MatchListed, v *view, key string) set {
	found := variable{
		key:  fmt.Sprint(key, " after ", v.snatAction, v.snat, v.target),
		text: m.String() + " for the new source",
		kind: unknownBit,
	}
	if !v.snat.IsValid() {
		return s.variable(found) // the kernel selects the source
	}
	found.kind = s.randomForSinglePacket(hostFact)
	original := *v
	original.snatAction, original.snat = "", netip.Addr{}
	return s.ifElse(s.is(source, address(v.snat)), s.inList(m, &original), s.variable(found))
}
