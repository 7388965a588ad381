package rules

import (
	"fmt"
	"strings"
)

// Unknown is a condition or an action that the model has no word for. It is both a [Match] and an
// [Action].
//
// As a match it may be fulfilled or not; one that can have another effect, so that its Effect is
// not Reads or Draws, belongs among the actions, with what follows it as [Require]. An evaluation
// treats it as undecided for every packet that reaches the rule.
type Unknown struct {
	Text string
	// Effect is what it may do.
	Effect Effect
	// Data is what Text does not say of it. Two unknowns in the same rule of two rulesets are the
	// same if Text and Data are equal; NoData is equal to nothing.
	Data string
	// State names what it depends on besides the packet and what Records and Writes change: a list
	// of addresses, labels. Conditions of one state see what was written to it. If it is empty,
	// Draws has a state of the rule's own, such as a limit's; Reads may depend on any state.
	State string
}

// NoData is the Data of an [Unknown] that depends on something which has not been read, such as the
// elements of a set that change.
const NoData = "\x00"

// Effect is what an [Unknown] may do to a packet, besides ending its rule.
type Effect uint8

// The effects.
const (
	// Anything stands for all effects: it may drop or accept the packet, change it, its marks, its
	// connection and where it goes.
	Anything Effect = iota
	// Reads is no effect: it is a condition that depends on something which the model does not
	// have.
	Reads
	// Draws is no effect either. Which packets fulfil the condition depends on chance or on earlier
	// packets, and each packet may.
	Draws
	// Records is Draws, and what it keeps of each packet for which it is evaluated decides about
	// later packets, also in other rules that depend on the same State. It is no condition: it
	// belongs among the actions.
	Records
	// Writes changes the State, and the rule goes on: labels, an element of a list. It belongs
	// among the actions.
	Writes
	// WritesMark gives the packet an unknown mark.
	WritesMark
	// WritesConntrackMark gives the packet's connection an unknown mark.
	WritesConntrackMark
	// TranslatesSource ends the evaluation in a chain of NAT at postrouting, and gives the packet
	// another source (SNAT, MASQUERADE). In other chains it is Anything.
	TranslatesSource
)

// IsCondition reports whether the effect is none.
func (e Effect) IsCondition() bool { return e == Reads || e == Draws }

func (m Unknown) rank() int { return 14 }
func (Unknown) action()     {}

// String returns the text that the model has no word for.
func (m Unknown) String() string { return "unknown(" + m.Text + ")" }

// MatchTuple matches packets that fulfil all conditions of one alternative, as nft's concatenations
// do; with Not, packets that fulfil no alternative. A packet that lacks one of the compared fields
// matches in neither case.
type MatchTuple struct {
	Not          bool
	Alternatives [][]Match
}

// MatchICMP matches packets of ICMP, or with V6 of ICMPv6, by type and code: 256 times the type and
// the code.
type MatchICMP struct {
	V6     bool
	Not    bool
	Values []Range[uint16] // normalised
}

func (m MatchTuple) rank() int { return 3 }
func (m MatchICMP) rank() int  { return 6 }

// String writes the match as nft does, one alternative after the other.
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

// String writes the match in nft's syntax, with type and code as numbers.
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
