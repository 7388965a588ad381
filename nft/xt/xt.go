package xt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// BuiltInChains contains iptables' names of the built-in chains. The index is the [rules.Hook].
var BuiltInChains = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// An Extension is a match or a target in the kernel's representation.
type Extension struct {
	Name     string
	Revision uint32
	// Data is the structure of the extension. If it was read from the kernel, it may end with
	// padding.
	Data []byte
}

// DecodeMatch decodes a match of a rule of the family. It returns no matches for an extension that
// matches every packet. It appends a comment to the comment of the rule. The rule must already have
// its match of the protocol, because the model supports ports only for some protocols (see
// [rules.Protocol.HasPorts]).
//
// An extension with side effects decodes to a [rules.Unknown] that is not a condition (see
// [rules.Effect.IsCondition]). The caller must add the Unknown, and then every later match of the
// rule, to the actions of the rule.
func DecodeMatch(r *rules.Rule, family rules.Family, x Extension) []rules.Match {
	if x.Name == "comment" && x.Revision == 0 {
		addComment(r, x.Data)
		return nil
	}
	if matches, ok := decodeMatch(r, family, x); ok {
		return matches
	}
	return []rules.Match{unknownMatch(family, x)}
}

// decodeMatch decodes a match if the model can represent it.
func decodeMatch(r *rules.Rule, family rules.Family, x Extension) ([]rules.Match, bool) {
	protocol := onlyProtocol(r)
	switch (key{x.Name, x.Revision}) {
	case key{"tcp", 0}:
		return decodeTCP(x.Data, protocol == rules.TCP)
	case key{"udp", 0}:
		return decodeUDP(x.Data, protocol == rules.UDP)
	case key{"sctp", 0}:
		return decodeSCTP(x.Data, protocol == rules.SCTP)
	case key{"multiport", 1}:
		return decodeMultiport(x.Data, protocol.HasPorts())
	case key{"icmp", 0}:
		return decodeICMP(x.Data, false, protocol == rules.ICMP)
	case key{"icmp6", 0}:
		return decodeICMP(x.Data, true, protocol == rules.ICMPv6)
	case key{"owner", 1}:
		return decodeOwner(x.Data)
	case key{"cgroup", 2}:
		return decodeCgroup(x.Data)
	case key{"mark", 1}:
		return decodeMarkMatch(x.Data, false)
	case key{"connmark", 1}:
		return decodeMarkMatch(x.Data, true)
	case key{"conntrack", 1}, key{"conntrack", 2}, key{"conntrack", 3}:
		return decodeConntrack(x.Revision, x.Data)
	case key{"state", 0}:
		return decodeState(x.Data)
	case key{"iprange", 1}:
		return decodeAddrRanges(family, x.Data)
	case key{"addrtype", 0}, key{"addrtype", 1}:
		return decodeAddrType(family, x.Revision, x.Data)
	case key{"socket", 1}, key{"socket", 2}, key{"socket", 3}:
		return decodeSocket(x.Data)
	case key{"rpfilter", 0}:
		return decodeReversePath(x.Data)
	}
	return nil, false
}

// A key identifies the structure of an extension.
type key struct {
	name     string
	revision uint32
}

// onlyProtocol returns the protocol if the rule matches only packets of one protocol, or 0.
func onlyProtocol(r *rules.Rule) rules.Protocol {
	for _, m := range r.Matches {
		if p, ok := m.(rules.MatchProtocol); ok && !p.Not && len(p.Protocols) == 1 {
			return p.Protocols[0]
		}
	}
	return 0
}

// DecodeTarget returns the action of a target in a rule of the family. It returns a [rules.Unknown]
// if the model cannot represent the action.
func DecodeTarget(family rules.Family, x Extension) rules.Action {
	if action := decodeTarget(family, x); action != nil {
		return action
	}
	if text, ok := targetText(family, x); ok {
		return rules.Unknown{Text: text}
	}
	return unknownTarget(x, rules.AnyEffect)
}

// decodeTarget returns the action of a target. It returns nil for a target that the switch does not
// list, and for a structure that is invalid or that the model does not support.
func decodeTarget(family rules.Family, x Extension) rules.Action {
	switch (key{x.Name, x.Revision}) {
	case key{"MARK", 2}:
		return decodeMark(x.Data)
	case key{"CONNMARK", 1}, key{"CONNMARK", 2}:
		return decodeConnmark(x)
	case key{"REDIRECT", 0}:
		return decodeRedirect(family, x)
	case key{"DNAT", 0}, key{"DNAT", 1}, key{"DNAT", 2}:
		return decodeDNAT(family, x)
	case key{"REJECT", 0}:
		return decodeReject(family, x.Data)
	case key{"TPROXY", 0}, key{"TPROXY", 1}:
		return decodeTProxy(family, x.Revision, x.Data)
	case key{"CT", 0}, key{"CT", 1}, key{"CT", 2}:
		return decodeCT(x.Revision, x.Data)
	case key{"NOTRACK", 0}:
		return rules.Notrack{}
	case key{"SNAT", 0}, key{"SNAT", 1}, key{"SNAT", 2}:
		return decodeSNAT(family, x)
	case key{"MASQUERADE", 0}:
		return decodeMasquerade(family, x)
	case key{"TCPMSS", 0}, key{"CHECKSUM", 0}, key{"TTL", 0}, key{"HL", 0}, key{"DSCP", 0},
		key{"TOS", 1}, key{"CLASSIFY", 0}:
		return decodeHeaderTarget(x)
	case key{"RATEEST", 0}:
		u := unknownTarget(x, rules.Writes)
		u.State = StateOfRates
		return u
	case key{"NFLOG", 0}:
		const groupOffset = 4 // in struct xt_nflog_info
		if len(x.Data) >= groupOffset+2 {
			return LogToGroup(native.Uint16(x.Data[groupOffset:]))
		}
		return NoEffect(x.Name)
	case key{"AUDIT", 0}, key{"IDLETIMER", 0}, key{"IDLETIMER", 1}, key{"LED", 0}, key{"LOG", 0},
		key{"TRACE", 0}, key{"ULOG", 0}:
		return NoEffect(x.Name)
	}
	return nil
}

// NoEffect returns the action of a target that records the packet and continues with the next rule
// (XT_CONTINUE), such as LOG. name is the name of the target.
func NoEffect(name string) rules.NoEffect {
	text, ok := map[string]string{
		"LOG": "log", "AUDIT": "log level audit", "TRACE": "meta nftrace set 1",
	}[name]
	if !ok {
		text = "unknown(-j " + name + ")"
	}
	return rules.NoEffect{Text: text}
}

// LogToGroup returns the action of the target NFLOG, which sends packets to the listeners of a
// group.
func LogToGroup(group uint16) rules.NoEffect {
	return rules.NoEffect{Text: fmt.Sprintf("log group %d", group)}
}

// EncodeMatches encodes matches of a rule in their order. Each match must need an extension: the
// caller encodes the protocol, the interfaces and the prefixes of the rule. protocol is the
// protocol that the rule matches, or 0. It selects the structure for ports. The error names the
// unsupported match.
func EncodeMatches(protocol rules.Protocol, matches []rules.Match) ([]Extension, error) {
	e := matchEncoder{protocol: protocol, matches: matches}
	for _, m := range matches {
		if err := e.encode(m); err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
	}
	return e.finish(), nil
}

// encodeMatch encodes a match that does not compare the TCP or UDP header.
func encodeMatch(m rules.Match) (Extension, error) {
	switch m := m.(type) {
	case rules.MatchOwner:
		return encodeOwner(m)
	case rules.MatchCgroup:
		return encodeCgroup(m)
	case rules.MatchMark:
		return encodeMarkMatch(m), nil
	case rules.MatchState:
		return encodeConntrack(stateFlag, m.Not, uint16(StateBits(m.States)), 0), nil
	case rules.MatchStatus:
		return encodeConntrack(statusFlag, m.Not, 0, uint16(m.Status)), nil
	case rules.MatchDirection:
		// The kernel represents the reply direction as the negation of the original direction.
		return encodeConntrack(directionFlag, m.Reply, 0, 0), nil
	case rules.MatchAddr:
		return encodeAddrRange(m)
	case rules.MatchAddrType, rules.MatchICMP, rules.MatchReversePath, rules.MatchSocket,
		rules.MatchTuple:
		return Extension{}, errOnlyDecoded
	}
	return Extension{}, errUnsupported
}

var (
	errUnsupported = errors.New("xtables has no such match")
	errOnlyDecoded = errors.New("encoding it for xtables is not supported")
)

// EncodeTarget encodes an action of a rule of the family, other than a verdict or a jump.
func EncodeTarget(family rules.Family, action rules.Action) (Extension, error) {
	switch a := action.(type) {
	case rules.SetMark:
		return encodeMark(a), nil
	case rules.SaveMark:
		return encodeMixMark(rules.MixMark{Conntrack: true, Mark: ^uint32(0)})
	case rules.RestoreMark:
		return encodeMixMark(rules.MixMark{ConntrackMark: ^uint32(0)})
	case rules.MixMark:
		return encodeMixMark(a)
	case rules.RedirectTo:
		return encodeNAT("REDIRECT", family, Translation{Port: a.Port, Last: a.Last})
	case rules.DNATPort:
		return encodeDNAT(family, rules.DNATTo{Port: a.Port, Last: a.Last})
	case rules.DNATTo:
		if !a.Addr.IsValid() {
			return Extension{}, errors.New("DNAT needs an address")
		}
		return encodeDNAT(family, a)
	case rules.SNATTo:
		return encodeNAT("SNAT", family, Translation{Addr: a.Addr})
	case rules.Reject:
		return encodeReject(family, a)
	case rules.TProxyDrop:
		return encodeTProxy(family, a)
	case rules.SetZone:
		if a.Helper != "" {
			return Extension{}, fmt.Errorf("%s: %w", action, errOnlyDecoded)
		}
		return encodeCT(0, a.Zone), nil
	case rules.Notrack:
		return encodeCT(ctNotrack, 0), nil
	}
	return Extension{}, fmt.Errorf("%s: xtables has no such target", action)
}

// textBeforeZero returns the bytes before the first zero byte, or all bytes without one.
func textBeforeZero(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// namesOfBits returns the names of the bits that are set, in their order. names contains a name for
// each bit, from bit 0.
func namesOfBits(bits uint32, names []string) []string {
	var found []string
	for i, name := range names {
		if bits&(1<<i) != 0 {
			found = append(found, name)
		}
	}
	return found
}

// Byte orders. They are pointers because copies would need initialization code at program start.
var (
	native  = &binary.NativeEndian
	network = &binary.BigEndian
)
