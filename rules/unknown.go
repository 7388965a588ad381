package rules

import (
	"fmt"
	"strings"
)

// Unknown is a condition or an action that the model does not support. It implements both [Match]
// and [Action].
//
// As a match its result is unknown. If it can have a side effect, so that its Effect is not Reads
// or Draws, it must be among the actions, followed by later matches as [Require]. The evaluation
// treats it as undecided for every packet that reaches the rule.
type Unknown struct {
	Text string
	// Effect is its possible effect.
	Effect Effect
	// Data is the part of its content that Text does not contain. Two unknowns in the same rule of
	// two rulesets are equal if Text and Data are equal; NoData is not equal to anything.
	Data string
	// State is the state that it reads, or changes if Effect is Records or Writes, such as a list
	// of addresses or labels. All conditions of a state depend on earlier writes to it. If it is
	// empty, Draws has a state that belongs to the rule, such as a limit; Reads may depend on any
	// state.
	State string
}

// NoData is the Data of an [Unknown] that depends on something that was not read, such as the
// elements of a set that changes.
const NoData = "\x00"

// Effect is a possible side effect of an [Unknown].
type Effect uint8

// The effects.
const (
	// Anything means all effects: it may drop or accept the packet, or change its contents, marks,
	// connection and destination.
	Anything Effect = iota
	// Reads means no side effect: a condition on something that the model does not contain.
	Reads
	// Draws means no side effect: a condition that depends on random numbers or earlier packets, so
	// that it may match any packet.
	Draws
	// Records is Draws with a side effect: evaluating it changes State, which affects later
	// packets, also in other rules with the same State. It must be among the actions.
	Records
	// Writes changes State, and the rule continues: labels, an element of a list. It must be among
	// the actions.
	Writes
	// WritesMark sets an unknown mark of the packet.
	WritesMark
	// WritesConntrackMark sets an unknown mark of the packet's connection.
	WritesConntrackMark
	// TranslatesSource, in a chain of NAT at postrouting, ends the evaluation and changes the
	// source address (SNAT, MASQUERADE). In other chains it is Anything.
	TranslatesSource
)

// IsCondition reports whether there is no side effect.
func (e Effect) IsCondition() bool { return e == Reads || e == Draws }

func (m Unknown) rank() int { return 14 }
func (Unknown) action()     {}

// String returns the text of the unsupported expression.
func (m Unknown) String() string { return "unknown(" + m.Text + ")" }

// MatchTuple matches packets that meet all conditions of an alternative, like nft's concatenations;
// with Not, packets that meet no alternative. A packet without one of the compared fields does not
// match in either case.
type MatchTuple struct {
	Not          bool
	Alternatives [][]Match
}

// MatchICMP matches packets of ICMP, or with V6 of ICMPv6, by type and code: 256 times the type
// plus the code.
type MatchICMP struct {
	V6     bool
	Not    bool
	Values []Range[uint16] // normalised
}

func (m MatchTuple) rank() int { return 3 }
func (m MatchICMP) rank() int  { return 6 }

// String returns the match in nft's syntax, one alternative after the other.
func (m MatchTuple) String() string {
	alternatives := make([]string, len(m.Alternatives))
	for i, matches := range m.Alternatives {
		texts := make([]string, len(matches))
		for j, one := range matches {
			texts[j] = one.String()
		}
		alternatives[i] = strings.Join(texts, " . ")
	}
	text := "{ " + strings.Join(alternatives, ", ") + " }"
	if m.Not {
		return "!= " + text
	}
	return text
}

// String returns the match in nft's syntax, with type and code as numbers.
func (m MatchICMP) String() string {
	key := "icmp type . code "
	if m.V6 {
		key = "icmpv6 type . code "
	}
	return key + operand(m.Not, m.Values, func(r Range[uint16]) string {
		switch {
		case r.IsSingle():
			return fmt.Sprintf("%d . %d", r.First>>8, r.First&0xff)
		case r.First&0xff == 0 && r.Last == r.First|0xff:
			return fmt.Sprintf("%d . *", r.First>>8)
		}
		return fmt.Sprintf("%d . %d-%d . %d", r.First>>8, r.First&0xff, r.Last>>8, r.Last&0xff)
	})
}
