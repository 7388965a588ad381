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

// decode reads a table into the model, chain by chain and rule by rule. What the model has no word for is [rules.Unknown].
func decode(t *xtables.Table) *rules.Table {
	table := &rules.Table{Family: t.Family, Name: t.Name}
	for i := range t.Chains {
		c := &t.Chains[i]
		chain := rules.Chain{Name: c.Name, Base: baseOf(t.Name, c)}
		for j := range c.Rules {
			r := decodeRule(t.Family, &c.Rules[j])
			r.Position = uint64(j + 1)
			chain.Rules = append(chain.Rules, r)
		}
		table.Chains = append(table.Chains, chain)
	}
	return table
}

// baseOf says how a built-in chain is attached.
func baseOf(table string, c *xtables.Chain) *rules.Base {
	if c.Hook == nil {
		return nil
	}
	return save.Base(table, *c.Hook, c.Policy() == xtables.Drop)
}

// decodeRule reads a rule.
func decodeRule(family rules.Family, r *xtables.Rule) rules.Rule {
	rule := rules.Rule{Matches: decodeHeader(family, r.Header()), Hits: r.Hits()}
	for _, m := range r.Matches() {
		xt.DecodeMatch(&rule, family, extension(m))
	}
	rules.SortMatches(rule.Matches)
	// The kernel counts what matches, before the target.
	rule.Actions = []rules.Action{rules.Count{}}
	if a := actionOf(family, r); a != nil && a != rules.Action(rules.Count{}) {
		rule.Actions = append(rule.Actions, a)
	}
	return rule
}

func extension(x xtables.Extension) xt.Extension {
	return xt.Extension{Name: x.Name, Revision: uint32(x.Revision), Data: x.Data}
}

// actionOf is what a rule does, nil if it only counts.
func actionOf(family rules.Family, r *xtables.Rule) rules.Action {
	if chain, isGoto := r.Jump(); chain != "" {
		return rules.Jump{Chain: chain, Goto: isGoto}
	}
	verdict, ok := r.Verdict()
	if !ok {
		return xt.DecodeTarget(family, extension(r.Target()))
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

// decodeHeader reads what every rule compares.
func decodeHeader(family rules.Family, h xtables.Header) []rules.Match {
	d := headerDecoder{invert: h.Invert}
	d.name(h.In, false, xtables.InvertIn)
	d.name(h.Out, true, xtables.InvertOut)
	d.address(h.Source, rules.Source, xtables.InvertSource)
	d.address(h.Destination, rules.Destination, xtables.InvertDestination)
	flags, asked := h.Flags&^xtables.FlagGoto4, h.Protocol != 0
	if family == rules.IPv6 {
		flags = h.Flags &^ (xtables.FlagGoto6 | xtables.FlagProtocol6)
		asked = h.Flags&xtables.FlagProtocol6 != 0
	}
	if asked {
		d.protocol(h.Protocol)
	}
	if flags != 0 || d.invert != 0 {
		// Fragments, and the type of service of IPv6.
		d.unknown("flags 0x%x, inverted 0x%x", flags, d.invert)
	}
	return d.matches
}

// headerDecoder collects matches; invert has the bits that no match has used yet.
type headerDecoder struct {
	matches []rules.Match
	invert  uint8
}

func (d *headerDecoder) unknown(format string, args ...any) {
	d.matches = append(d.matches, rules.Unknown{Text: fmt.Sprintf(format, args...)})
}

// inverted takes a bit from invert.
func (d *headerDecoder) inverted(bit uint8) bool {
	is := d.invert&bit != 0
	d.invert &^= bit
	return is
}

// name reads an interface. The mask says whether the end of its name is compared too.
func (d *headerDecoder) name(i xtables.Interface, out bool, invert uint8) {
	length := len(i.Mask) - len(bytes.TrimLeft(i.Mask[:], "\xff"))
	if i.Mask == [len(i.Mask)]byte{} {
		return
	}
	name, _, ended := bytes.Cut(i.Name[:length], []byte{0})
	if !ended && length == len(i.Name) || len(bytes.Trim(i.Mask[length:], "\x00")) != 0 || ended && len(name)+1 != length {
		d.unknown("interface %q in the bits of %x", i.Name, i.Mask)
		return
	}
	d.matches = append(d.matches, rules.MatchInterface{
		Out: out, Not: d.inverted(invert), Names: []rules.InterfaceName{{Name: string(name), Prefix: !ended}},
	})
}

// address reads an address in the bits of its mask, which make a prefix if they are those of people.
func (d *headerDecoder) address(a xtables.Address, side rules.Side, invert uint8) {
	if a.Mask.IsUnspecified() {
		return
	}
	ones, _ := net.IPMask(a.Mask.AsSlice()).Size() // 0 if one is behind a zero
	p := netip.PrefixFrom(a.Addr, ones)
	if ones == 0 || p.Masked() != p {
		d.unknown("address %s in the bits of %s", a.Addr, a.Mask)
		return
	}
	d.matches = append(d.matches, rules.MatchAddr{Side: side, Not: d.inverted(invert), Ranges: []netipx.IPRange{netipx.RangeOfPrefix(p)}})
}

// protocol reads the transport protocol.
func (d *headerDecoder) protocol(number uint16) {
	if number == 0 || number > 255 { // IPv6's 0 is any, whether inverted or not (ip6_packet_match)
		d.unknown("protocol %d", number)
		return
	}
	d.matches = append(d.matches, rules.MatchProtocol{
		Not: d.inverted(xtables.InvertProtocol), Protocols: []rules.Protocol{rules.Protocol(number)},
	})
}
