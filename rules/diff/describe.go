package diff

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// describedFields contains the fields with their names, in the order in which a description lists
// them. The field user includes the socket.
var describedFields = []struct {
	field field
	name  string
}{
	{protocol, "protocol"},
	{source, "source"},
	{sourcePort, "source port"},
	{destination, "destination"},
	{destinationPort, "destination port"},
	{newDestination, "translated destination"},
	{newPort, "translated port"},
	{iface, "interface"},
	{user, "user"},
	{group, "group"},
	{state, "state"},
	{reply, "direction"},
	{status, "status"},
	{flags, "flags"},
	{icmp, "icmp type and code"},
	{mark, "mark"},
	{connectionMark, "connection mark"},
	{noListener, "listener"},
	{destinationType, "destination type"},
	{sourceType, "source type"},
	{inAddress, "address of the interface"},
}

// describe returns the conditions of the box.
func (s *space) describe(b box) []Condition {
	family := rules.ByFamily(s.family, "IPv4", "IPv6")
	conditions := []Condition{{"hook", s.hook.String()}, {"family", family}}
	packets := s.and(b.packets(s), s.possible())
	for _, d := range describedFields {
		if b.fields[d.field] == all {
			continue
		}
		others := b
		others.fields[d.field] = all
		possible := s.projectToField(s.and(others.packets(s), s.possible()), d.field)
		occurring := s.projectToField(packets, d.field)
		if possible == occurring {
			continue
		}
		conditions = append(conditions, Condition{
			d.name, s.values(d.field, occurring, possible, b.fields[d.field]),
		})
	}
	for _, l := range b.literals {
		answer := "no"
		if l.value {
			answer = "yes"
		}
		question := strings.TrimPrefix(s.variableList[l.variable].text, yesNoPrefix)
		conditions = append(conditions, Condition{question, answer})
	}
	return conditions
}

// values returns the text of the values of a field in a box. occurring contains the values that
// packets of the box have; possible contains the values that packets would have without the
// condition on the field; condition contains the values that meet this condition.
func (s *space) values(f field, occurring, possible, condition set) string {
	if isBits(f) {
		return s.bitValues(f, occurring, condition)
	}
	switch f {
	case iface:
		return s.interfaceValues(occurring, possible)
	case state:
		return s.stateValues(occurring)
	}
	// The condition may have a shorter text than the values that occur.
	positive, negative := s.spans(f, occurring), s.spans(f, s.minus(possible, occurring))
	if exact := s.spans(f, s.not(condition)); len(exact) < len(negative) {
		negative = exact
	}
	if exact := s.spans(f, condition); len(exact) < len(positive) {
		positive = exact
	}
	if len(negative) < len(positive) && f != noListener && f != reply {
		return "not " + s.spanTexts(f, negative)
	}
	return s.spanTexts(f, positive)
}

// maxListed is the number of values that a shortened list contains.
const maxListed = 3

// maxWritten is the maximum number of values that are converted to text for a list. No field has
// more values with names.
const maxWritten = 256

// joinList joins texts with commas. It shortens a list of more than maxListed+1 texts to the first
// maxListed texts and the number of the others.
func joinList(texts []string) string {
	if n := len(texts) - maxListed; n > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxListed], ", "), n)
	}
	return strings.Join(texts, ", ")
}

// spanTexts returns the text of the values of a field in the spans.
func (s *space) spanTexts(f field, spans []span) string {
	var texts []string
	for _, v := range spans {
		s.meter.step()
		if len(texts) > maxWritten {
			texts = append(texts, "") // joinList omits it
			continue
		}
		texts = append(texts, s.spanText(f, v)...)
	}
	return joinList(texts)
}

// spanText returns the texts of the values of a field in the span: one text for the range, or one
// for each value if the values have names.
func (s *space) spanText(f field, v span) []string {
	first, last := v.first.low, v.last.low
	switch f {
	case source, destination, newDestination, inAddress:
		width := len(s.bits[f])
		r := netipx.IPRangeFrom(v.first.address(width), v.last.address(width))
		return []string{rules.FormatAddrRange(r)}
	case protocol, noListener, reply, destinationType, sourceType:
		var texts []string
		for n := first; n <= last; n++ {
			texts = append(texts, valueName(f, n))
		}
		if f == protocol && len(texts) > maxListed {
			return []string{fmt.Sprintf("%s-%s", texts[0], texts[len(texts)-1])}
		}
		return texts
	case user:
		switch {
		case first == kernelSocketUser && last < userSocketBit:
			return []string{"kernel socket"}
		case last < userSocketBit:
			return []string{"no socket"}
		case first < userSocketBit:
			return []string{"no socket", rules.IDRange{Last: uint32(last)}.String()}
		case first == userSocketBit && last == 2*userSocketBit-1:
			return []string{"any"}
		}
	}
	return []string{rules.IDRange{First: uint32(first), Last: uint32(last)}.String()}
}

// stateValues returns the text of the states in occurring. The text new stands for rules.New, and
// for laterNew too if occurring contains both.
func (s *space) stateValues(occurring set) string {
	contains := func(st rules.State) bool { return s.and(occurring, s.is(state, number(st))) != none }
	var texts []string
	for st := rules.New; st <= rules.Untracked; st++ {
		if contains(st) {
			texts = append(texts, st.String())
		}
	}
	if contains(laterNew) && !contains(rules.New) {
		texts = append(texts, "new but not the first packet")
	}
	return joinList(texts)
}

// valueName returns the name of a value of a field whose values have names.
func valueName(f field, n uint64) string {
	switch f {
	case protocol:
		return rules.Protocol(n).String()
	case reply:
		return [...]string{"original", "reply"}[n]
	case destinationType, sourceType:
		if n > uint64(rules.ResolvedType) {
			return "other" // no address has such a type
		}
		return rules.AddrType(n).String()
	}
	return [...]string{"listens", "none listens"}[n]
}

// bitValues returns the text of the values of a field for which isBits is true. occurring contains
// the values that packets of the box have, and condition is the result of shortCondition.
func (s *space) bitValues(f field, occurring, condition set) string {
	for _, c := range []struct {
		values  set
		negated bool
	}{{condition, false}, {s.not(condition), true}, {occurring, false}} {
		if v, mask, ok := s.pattern(f, c.values); ok {
			return s.patternText(f, v, mask, c.negated)
		}
	}
	prefix := ""
	if !s.isFew(f, condition) {
		prefix, condition = "not ", s.not(condition)
	}
	var texts []string
	for _, v := range s.firstValues(f, condition, maxListed) {
		texts = append(texts, bitsText(f, v))
	}
	return prefix + joinList(texts)
}

func bitsText(f field, v uint32) string {
	switch f {
	case flags:
		return rules.TCPFlags(v).String()
	case status:
		return rules.Status(v).String()
	}
	return fmt.Sprintf("0x%x", v)
}

// patternText returns the text of the condition that the bits of the mask are equal, or not equal,
// to v.
func (s *space) patternText(f field, v, mask uint32, negated bool) string {
	if mask == ^uint32(0)>>(32-len(s.bits[f])) {
		if negated {
			return "not " + bitsText(f, v)
		}
		return bitsText(f, v)
	}
	operator := "=="
	if negated {
		operator = "!="
	}
	if f == flags {
		return fmt.Sprintf("& (%s) %s %s", bitsText(f, mask), operator, bitsText(f, v))
	}
	return fmt.Sprintf("& %s %s %s", bitsText(f, mask), operator, bitsText(f, v))
}

// interfaceValues returns the text of the interfaces in occurring. If occurring contains the class
// of the interfaces that no rule names, the text lists the other possible interfaces, after "not".
func (s *space) interfaceValues(occurring, possible set) string {
	var in, out []interfaceClass
	for i, c := range s.interfaces.classes {
		n := s.is(iface, number(uint32(i)))
		switch {
		case s.and(n, occurring) != none:
			in = append(in, c)
		case s.and(n, possible) != none:
			out = append(out, c)
		}
	}
	isRest := func(c interfaceClass) bool { return c.name == rules.InterfaceName{} }
	if slices.ContainsFunc(in, isRest) {
		return "not " + classNames(out, in)
	}
	return classNames(in, out)
}

// classNames returns the text of classes. The text of a class with a prefix also lists the
// excluded names: the names in others that have the prefix.
func classNames(classes, others []interfaceClass) string {
	texts := make([]string, len(classes))
	// If there are more classes, joinList omits their texts.
	for i, c := range classes[:min(len(classes), maxListed+1)] {
		texts[i] = c.name.String()
		var excluded []string
		for _, o := range others {
			if c.name.Prefix && o.name != c.name && c.name.Contains(o.name.Name) {
				excluded = append(excluded, o.name.String())
			}
		}
		if len(excluded) > 0 {
			texts[i] += " but not " + joinList(excluded)
		}
	}
	return joinList(texts)
}
