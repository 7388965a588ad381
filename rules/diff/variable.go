package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A variable is a condition that does not depend on the fields of the packet. It is represented by
// a bit after the bits of the packet. Variables with equal keys have equal values on both sides.
type variable struct {
	key  string
	kind variableKind
	// text completes the sentence "the outcome depends on ...". If it is a question, it begins with
	// yesNoPrefix or an interrogative such as "which".
	text string
	// step is the rule that depends on the variable; nil if the kernel's behavior depends on it.
	step *rules.Step
}

// yesNoPrefix begins the text of a variable that is the answer to a yes-no question.
const yesNoPrefix = "whether "

// keySeparator separates the parts of a key. Programs do not use it in the names of objects.
const keySeparator = "\x01"

type variableKind uint8

const (
	// hostFact is a fact about the host that is the same for both sides, such as a route. Packets
	// differ if their outcomes differ for one of its values.
	hostFact variableKind = iota
	// random is a random number, or depends on earlier packets: both values occur.
	random
	// unknownBit is unknown: results that depend on it are undecided.
	unknownBit
)

// randomForSinglePacket returns random in the space of one packet, whose possible outcomes are all
// listed, and otherwise the given kind.
func (s *space) randomForSinglePacket(kind variableKind) variableKind {
	if s.single != nil {
		return random
	}
	return kind
}

// variables contains the variables of a space.
type variables struct {
	variableList  []variable
	variableIndex map[string]int
	// hasUnknowns reports that there is a variable of kind unknownBit or an unknown mark.
	hasUnknowns bool
	// markVariables describe the unknown marks that have fields, in the order of these fields. They
	// have no bits in addition to the fields.
	markVariables []variable
	// given contains the known values of some variables by key; they have no bits.
	given map[string]bool
}

// variable returns the packets for which the variable is 1.
func (s *space) variable(v variable) set {
	if value, ok := s.given[v.key]; ok {
		return allIf(value)
	}
	if s.single != nil && v.kind == hostFact {
		if value, ok := s.single.hostFactValue(v.key); ok {
			s.single.assume(v, value)
			return allIf(value)
		}
		v.kind = unknownBit
	}
	i, ok := s.variableIndex[v.key]
	if !ok {
		i = len(s.variableList)
		storeIn(&s.variableIndex, v.key, i)
		s.variableList = append(s.variableList, v)
		s.meter.alloc(int64(len(v.key)) + textEntrySize)
	}
	s.hasUnknowns = s.hasUnknowns || v.kind == unknownBit
	return s.node(variableBit(i), none, all)
}

// firstVariable is the bit of the first variable. Later variables have lower bits. Therefore the
// set of the packets after many random rules is a chain of nodes, and each rule adds one node at
// the top.
const firstVariable = 1 << 31

func variableBit(i int) uint32 { return firstVariable - uint32(i) }

// variableOf returns the index in variableList of the variable that a bit represents. If the bit
// belongs to a field, ok is false.
func (s *space) variableOf(bit uint32) (i int, ok bool) {
	return int(firstVariable) - int(bit), int(bit) >= len(s.fieldOf)
}

// Keys of host facts that fields of a [rules.Packet] may determine.
const (
	reversePathKey     = "reverse path "
	socketKey          = "transparent socket "
	toItselfKey        = "redirected to itself"
	boundKey           = "bound socket"
	selectsKey         = "selected interface"
	copyKey            = "copy of a sent packet"
	routeByLoopbackKey = "route by lo"
	listenerKey        = "missing listener "
	senderKey          = "transparent sender"
	toHostKey          = "translated to this host"
)

// hostFactValue returns the value of a host fact, if the packet determines it.
func (p *onePacket) hostFactValue(key string) (value, ok bool) {
	switch {
	case strings.HasPrefix(key, reversePathKey) && strings.Contains(key, "mark") && p.Mark != 0:
		return false, false // policy routes may route packets with the mark elsewhere
	case strings.HasPrefix(key, reversePathKey):
		// NoReversePath excludes only a strict path: there may be a loose one.
		return !p.NoReversePath, !p.NoReversePath || !strings.Contains(key, "loose")
	case strings.HasPrefix(key, socketKey):
		return p.TransparentSocket, true
	case key == senderKey:
		return p.TransparentSender, true
	case key == boundKey:
		return p.Bound, true
	case key == selectsKey:
		return p.SelectsInterface, true
	case strings.HasPrefix(key, listenerKey):
		return p.MissingListeners.Has(strings.TrimPrefix(key, listenerKey)), true
	case key == copyKey:
		return p.Copy, true
	case key == routeByLoopbackKey:
		return false, p.DestinationType == rules.Unicast
	case key == toItselfKey:
		return p.InAddress == p.Destination.Addr(), p.InAddress.IsValid()
	}
	return false, false
}

// assume adds a host fact to assumed if its value is a default because the packet does not state
// it.
func (p *onePacket) assume(v variable, value bool) {
	isDefault := strings.HasPrefix(v.key, reversePathKey) && !p.NoReversePath ||
		strings.HasPrefix(v.key, socketKey) && !p.TransparentSocket ||
		v.key == senderKey && !p.TransparentSender
	text := strings.TrimPrefix(v.text, yesNoPrefix) + ": no"
	if value {
		text = strings.TrimPrefix(v.text, yesNoPrefix) + ": yes"
	}
	if isDefault && !slices.Contains(p.assumed, text) {
		p.assumed = append(p.assumed, text)
	}
}

// isUnknown reports whether the value of a bit is unknown.
func (s *space) isUnknown(bit uint32) bool {
	if i, ok := s.variableOf(bit); ok {
		return s.variableList[i].kind == unknownBit
	}
	if isUnknownMark(s.fieldOf[bit]) {
		return true
	}
	// In the space of one packet, only unknown fields have bits.
	return s.single != nil
}

// possibly returns the packets that are in the set for at least one value of the unknowns.
func (s *space) possibly(packets set) set {
	if !s.hasUnknowns && s.single == nil {
		return packets
	}
	return s.project(packets, func(bit uint32) bool { return !s.isUnknown(bit) })
}

// certainly returns the packets that are in the set for all values of the unknowns.
func (s *space) certainly(packets set) set { return s.not(s.possibly(s.not(packets))) }

// unknownsOf returns the unknowns on which a set depends.
func (s *space) unknownsOf(packets set) (found []variable) {
	var indices []int
	s.support(packets, func(bit uint32) {
		i, ok := s.variableOf(bit)
		switch {
		case !s.isUnknown(bit):
		case ok:
			indices = append(indices, i)
		default:
			v := s.variableAt(bit)
			if !slices.ContainsFunc(found, func(o variable) bool { return o.key == v.key }) {
				found = append(found, v)
			}
		}
	})
	slices.Sort(indices)
	for _, i := range indices {
		found = append(found, s.variableList[i])
	}
	return found
}

// variableAt returns the variable or the unknown mark that a bit represents, or a description of
// the field of the bit.
func (s *space) variableAt(bit uint32) variable {
	if i, ok := s.variableOf(bit); ok {
		return s.variableList[i]
	}
	f := s.fieldOf[bit]
	if isUnknownMark(f) {
		return s.markVariables[f-firstUnknownMark]
	}
	return variable{key: fmt.Sprint("field ", f), text: unknownField(f)}
}

// unknownField describes a field that may be unknown, in the form of variable.text.
func unknownField(f field) string {
	switch f {
	case inAddress:
		return "the address of the interface, to which a redirection at prerouting translates"
	case newDestination, newPort:
		return "the destination to which earlier packets of the connection were translated"
	case destinationType:
		return "the type of the destination address"
	case sourceType:
		return "the type of the source address"
	case noListener:
		return "whether the socket of the connection is transparent"
	}
	return "a part of the packet"
}
