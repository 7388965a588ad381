package compat

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// DecodeTable converts an xtables table to a rules.Table. A match or target that the model does not
// support becomes [rules.Unknown].
func DecodeTable(t *xtables.Table) *rules.Table {
	table := &rules.Table{Family: t.Family, Name: t.Name, XTables: true}
	for i := range t.Chains {
		c := &t.Chains[i]
		chain := rules.Chain{Name: c.Name, Base: baseOf(t.Name, c)}
		for j := range c.Rules {
			chain.Rules = append(chain.Rules, decodeRule(t.Family, &c.Rules[j]))
		}
		table.Chains = append(table.Chains, chain)
	}
	return table
}

// baseOf returns the hook, type, priority and policy of a built-in chain, and nil for other chains.
func baseOf(table string, c *xtables.Chain) *rules.Base {
	if c.Hook == nil {
		return nil
	}
	return save.Base(table, *c.Hook, c.Policy() == xtables.Drop)
}

// decodeRule converts a rule.
func decodeRule(family rules.Family, r *xtables.Rule) rules.Rule {
	rule := rules.Rule{Hits: r.Hits()}
	for _, m := range decodeHeader(family, r.Header()) {
		addMatch(&rule, m)
	}
	for _, x := range r.Matches() {
		for _, m := range xt.DecodeMatch(&rule, family, x) {
			addMatch(&rule, m)
		}
	}
	rules.SortMatches(rule.Matches)
	// The kernel increments the counter before the target.
	rule.Actions = append(rule.Actions, rules.Count{})
	if a := actionOf(family, r); a != nil {
		rule.Actions = append(rule.Actions, a)
	}
	return rule
}

// addMatch appends a match to the rule. The kernel evaluates matches in order. A match with a side
// effect takes effect even if a later match fails. It is therefore added as an action, and later
// matches are added as Require actions.
func addMatch(r *rules.Rule, m rules.Match) {
	u, unknown := m.(rules.Unknown)
	switch {
	case unknown && !u.Effect.IsCondition():
		r.Actions = append(r.Actions, u)
	case len(r.Actions) > 0:
		r.Actions = append(r.Actions, rules.Require{Match: m})
	default:
		r.Matches = append(r.Matches, m)
	}
}

// actionOf returns the action of a rule, or nil if the rule only counts packets.
func actionOf(family rules.Family, r *xtables.Rule) rules.Action {
	if chain, isGoto := r.Jump(); chain != "" {
		return rules.Jump{Chain: chain, Goto: isGoto}
	}
	verdict, ok := r.Verdict()
	if !ok {
		return xt.DecodeTarget(family, r.Target())
	}
	switch verdict {
	case xtables.Continue:
		return nil
	case xtables.Accept:
		return rules.Accept
	case xtables.Drop:
		return rules.Drop
	case xtables.Return:
		return rules.Return
	}
	return rules.Unknown{Text: fmt.Sprintf("verdict %d", verdict)}
}

// decodeHeader converts the matches of the rule header.
func decodeHeader(family rules.Family, h xtables.Header) []rules.Match {
	d := headerDecoder{invert: h.Invert}
	d.addInterface(h.In, false, xtables.InvertIn)
	d.addInterface(h.Out, true, xtables.InvertOut)
	d.addAddress(h.Source, rules.Source, xtables.InvertSource)
	d.addAddress(h.Destination, rules.Destination, xtables.InvertDestination)
	flags, known := h.Flags&^xtables.FlagGoto4, uint8(xtables.FlagFragment4)
	hasProtocol, tos := h.Protocol != 0, ""
	if family == rules.IPv6 {
		flags, known = h.Flags&^(xtables.FlagGoto6|xtables.FlagProtocol6), xtables.FlagTOS6
		hasProtocol = h.Flags&xtables.FlagProtocol6 != 0
		tos = fmt.Sprintf(", type of service 0x%x", h.TOS)
	}
	if hasProtocol {
		d.addProtocol(h.Protocol)
	}
	if family == rules.IPv4 && flags == xtables.FlagFragment4 &&
		d.invert&^xtables.InvertFragment == 0 {
		// Package save returns the same text for this match.
		return append(d.matches, rules.Unknown{
			Text:   map[bool]string{false: "-f", true: "! -f"}[d.invert != 0],
			Effect: rules.Reads, Ignores: rules.AllInputs &^ rules.HeaderInput,
		})
	}
	if flags != 0 || d.invert != 0 {
		// The model does not support the remaining flags, such as the type of service of IPv6 or an
		// inversion without a match. Flags that current kernels lack may have any effect.
		effect := rules.Reads
		if flags&^known != 0 || d.invert&^knownInverts != 0 {
			effect = rules.AnyEffect
		}
		d.addUnknown(effect, "header flags 0x%x, inversion flags 0x%x%s", flags, d.invert, tos)
	}
	return d.matches
}

// knownInverts contains all bits that the kernel accepts (IPT_INV_MASK, IP6T_INV_MASK).
const knownInverts = xtables.InvertIn | xtables.InvertOut | xtables.InvertTOS |
	xtables.InvertSource | xtables.InvertDestination | xtables.InvertFragment |
	xtables.InvertProtocol

// A headerDecoder collects matches. invert contains the inversion flags that no match has used yet.
type headerDecoder struct {
	matches []rules.Match
	invert  uint8
}

// addUnknown adds an unknown match. The text must identify the match completely.
func (d *headerDecoder) addUnknown(effect rules.Effect, format string, args ...any) {
	d.matches = append(d.matches, rules.Unknown{
		Text: fmt.Sprintf(format, args...), Effect: effect,
		Ignores: rules.AllInputs &^ (rules.HeaderInput | rules.InterfaceInput),
	})
}

// takeNegation returns "not " if the bit is set, otherwise "", and clears the bit in invert.
func (d *headerDecoder) takeNegation(bit uint8) string {
	if d.takeInverted(bit) {
		return "not "
	}
	return ""
}

// takeInverted reports whether the bit is set, and clears it in invert.
func (d *headerDecoder) takeInverted(bit uint8) bool {
	isSet := d.invert&bit != 0
	d.invert &^= bit
	return isSet
}

// addInterface converts an interface. The mask shows whether the name is complete or a prefix: it
// covers a complete name with the terminating zero byte, and a prefix without one.
func (d *headerDecoder) addInterface(i xtables.Interface, out bool, invert uint8) {
	length := len(i.Mask) - len(bytes.TrimLeft(i.Mask[:], "\xff"))
	if i.Mask == [len(i.Mask)]byte{} && d.invert&invert == 0 {
		return
	}
	name, _, isComplete := bytes.Cut(i.Name[:length], []byte{0})
	if !isComplete && length == len(i.Name) || len(bytes.Trim(i.Mask[length:], "\x00")) != 0 ||
		isComplete && len(name)+1 != length {
		direction := map[bool]string{false: "incoming", true: "outgoing"}[out]
		d.addUnknown(rules.Reads, "%s%s interface %q, mask %x", d.takeNegation(invert), direction, i.Name,
			i.Mask)
		return
	}
	d.matches = append(d.matches, rules.MatchInterface{
		Out: out, Not: d.takeInverted(invert),
		Names: []rules.InterfaceName{{Name: string(name), Prefix: !isComplete}},
	})
}

// addAddress converts an address and its mask, which is usually the mask of a prefix.
func (d *headerDecoder) addAddress(a xtables.Address, side rules.Side, invert uint8) {
	if a.Mask.IsUnspecified() && (a.Addr.IsUnspecified() || a.Addr.Is6()) {
		// An all-zero mask matches every address. In IPv4 this requires that the address of the
		// rule is zero too (ip_packet_match, ip6_packet_match).
		if d.takeInverted(invert) {
			all := netip.PrefixFrom(a.Mask, 0)
			d.matches = append(d.matches, rules.MatchAddr{
				Side: side, Not: true, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(all)},
			})
		}
		return
	}
	ones, _ := net.IPMask(a.Mask.AsSlice()).Size() // 0 if it is not the mask of a prefix
	p := netip.PrefixFrom(a.Addr, ones)
	if ones == 0 || p.Masked() != p {
		name := map[rules.Side]string{
			rules.Source: "source", rules.Destination: "destination",
		}[side]
		d.addUnknown(rules.Reads, "%s%s address %s, mask %s", d.takeNegation(invert), name, a.Addr,
			a.Mask)
		return
	}
	d.matches = append(d.matches, rules.MatchAddr{
		Side: side, Not: d.takeInverted(invert), Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)},
	})
}

// addProtocol converts the transport protocol.
func (d *headerDecoder) addProtocol(number uint16) {
	if number == 0 || number > 255 { // IPv6: 0 matches any, even if inverted (ip6_packet_match)
		d.addUnknown(rules.Reads, "%sprotocol %d", d.takeNegation(xtables.InvertProtocol), number)
		return
	}
	d.matches = append(d.matches, rules.MatchProtocol{
		Not:       d.takeInverted(xtables.InvertProtocol),
		Protocols: []rules.Protocol{rules.Protocol(number)},
	})
}
