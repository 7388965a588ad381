package nft

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// This file decodes lookups in sets whose elements may differ from packet to packet, because rules
// change them. The model represents such a set as a list with a name. A set whose elements expire
// counts as such a set only with [ReadOptions.UntilChange].

// state returns the State of matches and actions of the model that read or change the set.
func (s *decodedSet) state(name string) string {
	if s == nil {
		return "set " + name
	}
	return "set " + s.table + " " + name
}

// listMatch returns the condition that the operands are in a set that may change. It supports only
// addresses, ports, protocols and families, and only elements without limits. The kernel must
// compare whole operands; see comparesFields.
func (d *ruleDecoder) listMatch(
	ops []operand, negated bool, name string, s *decodedSet,
) (rules.Match, bool) {
	if !s.isDynamic || s.verdicts != nil || s.data != nil {
		return nil, false
	}
	if s.load(); s.hasLimits || len(ops) == 1 && ops[0].length != s.keyLength {
		return nil, false
	}
	m := rules.MatchListed{Not: negated, List: "@" + name, State: s.state(name)}
	var parts []string
	for _, op := range ops {
		switch {
		case op.mask != nil || op.noData:
			return nil, false
		case d.isAddr(op), op.field == fieldProtocol, op.field == fieldFamily:
		case (op.field == fieldSourcePort || op.field == fieldDestinationPort) && op.hasPorts:
		default:
			return nil, false
		}
		m.Source = m.Source || op.field == fieldSource || op.field == fieldSourcePort
		m.Destination = m.Destination || op.field == fieldDestination ||
			op.field == fieldDestinationPort
		parts = append(parts, op.String())
	}
	m.Parts = strings.Join(parts, " . ")
	m.Contents = s.contents
	return m, true
}

// changeIdentity returns a text that identifies the effect of adding an element to the set. The
// addition ends the rule if the set is full. Additions to two sets have the same effect if the
// texts are equal. changeIdentity returns [rules.NoData] if the effect is unknown.
func (s *decodedSet) changeIdentity() string {
	if s == nil {
		return rules.NoData
	}
	if s.load(); s.bounds == "" {
		return rules.NoData
	}
	return fmt.Sprintf("key length %d %s %s", s.keyLength, s.bounds, s.contents)
}

// currentContents returns a hash of the elements at the time of the read, independent of their
// order. The hash distinguishes elements that expire from other elements, but does not depend on
// the time when they expire. Without elements, currentContents returns an empty text.
func currentContents(lists []attributes) string {
	var elements []string
	for _, list := range lists {
		list.Each(func(_ uint16, value []byte) {
			el := attributes(value)
			text := ""
			if el.Get(unix.NFTA_SET_ELEM_TIMEOUT) != nil ||
				el.Get(unix.NFTA_SET_ELEM_EXPIRATION) != nil {
				text = "expires "
			}
			for _, attr := range []uint16{
				unix.NFTA_SET_ELEM_KEY, nftaSetElemKeyEnd, unix.NFTA_SET_ELEM_FLAGS,
				unix.NFTA_SET_ELEM_DATA,
			} {
				text += fmt.Sprintf("%x ", el.Get(attr))
			}
			elements = append(elements, text)
		})
	}
	if len(elements) == 0 {
		return ""
	}
	slices.Sort(elements)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(elements, "\n"))))
}
