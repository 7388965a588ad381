// Package xt is the dictionary between the model and the matches and targets of xtables. Both kinds of iptables have them in the
// kernel's structures (linux/netfilter/xt_*.h): iptables-legacy in its tables, iptables-nft in its rules' "match" and "target"
// expressions.
//
// It knows those that redirection needs, in the revisions that iptables programs of the last fifteen years write. Any other, another
// revision and another use of a known one decode to [rules.Unknown], never to a guess. What is encoded are the oldest revisions that do,
// so that any kernel takes them. The numbers in the structures are in the machine's byte order, unless a comment says network.
//
// What the kernel (net/netfilter) asks for beside the structure, each with EINVAL where it is not so:
//   - owner: all packets that reach the rule are sent by this host (OUTPUT, POSTROUTING); and the process that writes a rule with a user
//     or a group is in the user namespace that owns the network namespace.
//   - tcp and udp: the rule compares the protocol, multiport: with one that has ports.
//   - TPROXY: the table is mangle, the rule is reached from PREROUTING only, and its protocol is TCP or UDP.
//   - REDIRECT and DNAT: the table is nat, the rule is reached from PREROUTING and OUTPUT only.
//   - CT: the table is raw.
//
// A structure of another size than the kernel's, padded to 8 bytes, is EINVAL too, and a match or target that the kernel does not have
// is ENOENT. conntrack, connmark, CONNMARK and CT make the kernel track the connections of the namespace, as NAT does.
package xt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// An Extension is a match or a target as the kernel has it.
type Extension struct {
	Name     string
	Revision uint32
	// Data is the extension's structure. When decoded it may be longer than the kernel's, by padding; encoded it has none.
	Data []byte
}

// DecodeMatch adds to the rule what a match of its asks for: usually one condition, none for one that any packet fulfils, and the
// rule's comment if it is one. The family is the rule's. The rule must have the protocol that it compares already, for what the ports
// of others than TCP and UDP are the model has no word for.
func DecodeMatch(r *rules.Rule, family rules.Family, x Extension) {
	if x.Name == "comment" && x.Revision == 0 {
		addComment(r, x.Data)
		return
	}
	matches, ok := conditions(r, family, x)
	if !ok {
		matches = []rules.Match{rules.Unknown{Text: fmt.Sprintf("match %s revision %d", x.Name, x.Revision)}}
	}
	r.Matches = append(r.Matches, matches...)
}

// conditions returns what a match asks for, if it can be said.
func conditions(r *rules.Rule, family rules.Family, x Extension) ([]rules.Match, bool) {
	switch (key{x.Name, x.Revision}) {
	case key{"tcp", 0}:
		return decodeTCP(x.Data, comparesProtocol(r, rules.TCP))
	case key{"udp", 0}:
		return decodeUDP(x.Data, comparesProtocol(r, rules.UDP))
	case key{"multiport", 1}:
		return decodeMultiport(x.Data, comparesProtocol(r, rules.TCP) || comparesProtocol(r, rules.UDP))
	case key{"owner", 1}:
		return decodeOwner(x.Data)
	case key{"mark", 1}:
		return decodeMarkMatch(x.Data, false)
	case key{"connmark", 1}:
		return decodeMarkMatch(x.Data, true)
	case key{"conntrack", 1}, key{"conntrack", 2}, key{"conntrack", 3}:
		return decodeState(x.Revision, x.Data)
	case key{"iprange", 1}:
		return decodeAddrRanges(family, x.Data)
	}
	return nil, false
}

// key tells structures apart.
type key struct {
	name     string
	revision uint32
}

// comparesProtocol tells whether only packets of the protocol fulfil the rule.
func comparesProtocol(r *rules.Rule, p rules.Protocol) bool {
	return slices.ContainsFunc(r.Matches, func(m rules.Match) bool {
		of, ok := m.(rules.MatchProtocol)
		return ok && !of.Not && slices.Equal(of.Protocols, []rules.Protocol{p})
	})
}

// DecodeTarget returns what a target does in a rule of the family.
func DecodeTarget(family rules.Family, x Extension) rules.Action {
	if action := action(family, x); action != nil {
		return action
	}
	return rules.Unknown{Text: fmt.Sprintf("target %s revision %d", x.Name, x.Revision)}
}

// action returns what a target does, nil if it cannot be said.
func action(family rules.Family, x Extension) rules.Action {
	switch (key{x.Name, x.Revision}) {
	case key{"MARK", 2}:
		return decodeMark(x.Data)
	case key{"CONNMARK", 1}, key{"CONNMARK", 2}:
		return decodeConnmark(x.Revision, x.Data)
	case key{"REDIRECT", 0}:
		return decodeRedirect(family, x.Data)
	case key{"DNAT", 0}, key{"DNAT", 1}, key{"DNAT", 2}:
		return decodeDNAT(family, x.Revision, x.Data)
	case key{"TPROXY", 0}, key{"TPROXY", 1}:
		return decodeTProxy(family, x.Revision, x.Data)
	case key{"CT", 0}, key{"CT", 1}, key{"CT", 2}:
		return decodeZone(x.Revision, x.Data)
	case key{"LOG", 0}, key{"NFLOG", 0}, key{"TRACE", 0}:
		return rules.Count{} // and tell somebody
	}
	return nil
}

// EncodeMatches writes the matches that a rule's own comparisons have no place for, in their order, but for the protocol: that is for
// the caller to compare, and given because the structure for ports depends on it. The error names the match that xtables cannot say.
func EncodeMatches(protocol rules.Protocol, matches []rules.Match) ([]Extension, error) {
	e := portEncoder{protocol: protocol, matches: matches}
	for _, m := range matches {
		if err := e.encode(m); err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
	}
	return e.finish(), nil
}

// encodeMatch writes a match that is not about what is in a header of TCP or UDP.
func encodeMatch(m rules.Match) (Extension, error) {
	switch m := m.(type) {
	case rules.MatchOwner:
		return encodeOwner(m)
	case rules.MatchMark:
		return encodeMarkMatch(m), nil
	case rules.MatchState:
		return encodeState(m), nil
	case rules.MatchAddr:
		return encodeAddrRange(m)
	}
	return Extension{}, errNoWord
}

var errNoWord = errors.New("xtables has no match for it")

// EncodeTarget writes what a rule of the family does, other than a verdict or a jump.
func EncodeTarget(family rules.Family, action rules.Action) (Extension, error) {
	switch a := action.(type) {
	case rules.SetMark:
		return encodeMark(a)
	case rules.SaveMark:
		return encodeConnmark(connmarkSave), nil
	case rules.RestoreMark:
		return encodeConnmark(connmarkRestore), nil
	case rules.RedirectTo:
		return encodeNAT(family, Extension{Name: "REDIRECT"}, a.Port)
	case rules.DNATPort:
		return encodeDNAT(family, a)
	case rules.TProxyDrop:
		return encodeTProxy(a)
	case rules.SetZone:
		return encodeZone(a), nil
	}
	return Extension{}, fmt.Errorf("%s: xtables has no target for it", action)
}

// The byte orders of numbers. They are pointers, since copies would be made at the start of every program.
var (
	native  = &binary.NativeEndian
	network = &binary.BigEndian
)
