package nft

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file decodes expressions that change an address or a port of a packet, divert the packet to
// a local socket, or reject it.

// mappedRegister returns the index of the first register of a value from a map, if a register of
// the given attributes contains such a value.
func (d *ruleDecoder) mappedRegister(a attributes, attrs ...uint16) (int, bool) {
	for _, attr := range attrs {
		r := registerIndex(a, attr)
		if r >= registerCount {
			continue
		}
		if op, offset := d.operandAt(r); op != nil && op.field == fieldMapped {
			return r - offset/4, true
		}
	}
	return 0, false
}

// natPorts returns the ports in the registers of two attributes. A missing port is 0. last is also
// 0 if it equals first. ok is false if a port is not a valid constant, or if there is a port but
// the rule is not limited to protocols with ports.
func (d *ruleDecoder) natPorts(
	a attributes, minAttr, maxAttr uint16,
) (first, last uint16, ok bool) {
	if a.Get(minAttr) == nil {
		return 0, 0, a.Get(maxAttr) == nil
	}
	value, ok := d.constantAt(a, minAttr, 2)
	if !ok {
		return 0, 0, false
	}
	first, _ = networkNumber[uint16](value)
	if a.Get(maxAttr) != nil {
		if value, ok = d.constantAt(a, maxAttr, 2); !ok {
			return 0, 0, false
		}
		last, _ = networkNumber[uint16](value)
	}
	if last == first {
		last = 0
	}
	// Other protocols have other fields at the offset of the port.
	ok = first != 0 && (last == 0 || last > first) && d.limitedToPorts()
	return first, last, ok
}

// contradictsPort reports whether the flag for a port (NF_NAT_RANGE_PROTO_SPECIFIED) contradicts
// the port of a NAT expression, which is 0 if the expression has none: the kernel ignores a port
// without the flag, and uses port 0 for the flag without a port. From Linux 6.4 on, the kernel adds
// the flag to a redirection without flags, but not to one with other flags (nft_redir_init in
// net/netfilter/nft_redir.c). Earlier kernels do not need the flag for a redirection; nft sets it
// nevertheless.
func contradictsPort(flags uint32, port uint16) bool {
	return (port != 0) != (flags&unix.NF_NAT_RANGE_PROTO_SPECIFIED != 0)
}

// natFlags returns the flags of a nat expression. The kernel adds the flags for an address and for
// a port (nft_nat_init in net/netfilter/nft_nat.c). natFlags returns false if the expression has
// the flag for an address, but no address: the kernel uses the unspecified address.
func natFlags(a attributes) (flags uint32, ok bool) {
	flags = a.Number(unix.NFTA_NAT_FLAGS)
	if a.Get(unix.NFTA_NAT_REG_PROTO_MIN) != nil {
		flags |= unix.NF_NAT_RANGE_PROTO_SPECIFIED
	}
	return flags, flags&unix.NF_NAT_RANGE_MAP_IPS == 0 || a.Get(unix.NFTA_NAT_REG_ADDR_MIN) != nil
}

// decodeRedirect decodes the redirection to a local port.
func (d *ruleDecoder) decodeRedirect(a attributes) error {
	if r, ok := d.mappedRegister(a, unix.NFTA_REDIR_REG_PROTO_MIN,
		unix.NFTA_REDIR_REG_PROTO_MAX); ok {
		return d.decodeMapBranches(r, func(branch *ruleDecoder) error { return branch.decodeRedirect(a) })
	}
	first, last, ok := d.natPorts(a, unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFTA_REDIR_REG_PROTO_MAX)
	flags := a.Number(unix.NFTA_REDIR_FLAGS)
	if !ok || flags&^(unix.NF_NAT_RANGE_PROTO_SPECIFIED|unix.NF_NAT_RANGE_PERSISTENT) != 0 ||
		contradictsPort(flags, first) {
		return errUnsupported
	}
	d.addAction(rules.RedirectTo{Port: first, Last: last})
	return nil
}

// A sourceTranslation is the error for source NAT without an action in the model. The model
// represents such NAT only by the effect [rules.TranslatesSource]. text identifies the translation,
// or is empty.
type sourceTranslation struct{ text string }

func (sourceTranslation) Error() string { return "source " + errUnsupported.Error() }

// decodeSourceNAT decodes source NAT. The model has an action for a translation to one address
// without specified ports. For other translations, decodeSourceNAT returns a sourceTranslation.
func (d *ruleDecoder) decodeSourceNAT(a attributes) error {
	family := a.Number(unix.NFTA_NAT_FAMILY)
	addr, last, ok := d.natAddrs(a, family)
	flags, _ := natFlags(a)
	if !ok || last.IsValid() || a.Get(unix.NFTA_NAT_REG_PROTO_MAX) != nil ||
		flags&^(unix.NF_NAT_RANGE_MAP_IPS|unix.NF_NAT_RANGE_PERSISTENT) != 0 {
		text := ""
		if ok && addr.IsValid() {
			text = d.sourceText(xt.Translation{Addr: addr, LastAddr: last}, a, flags,
				unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
		}
		if err := d.limitNAT(family); err != nil {
			return err
		}
		return sourceTranslation{text}
	}
	return d.addTranslation(family, rules.SNATTo{Addr: addr})
}

// decodeMasquerade decodes source NAT to an address that the kernel selects. It always returns a
// sourceTranslation.
func (d *ruleDecoder) decodeMasquerade(a attributes) error {
	return sourceTranslation{d.sourceText(xt.Translation{Kind: xt.Masquerade}, a,
		a.Number(unix.NFTA_MASQ_FLAGS), unix.NFTA_MASQ_REG_PROTO_MIN, unix.NFTA_MASQ_REG_PROTO_MAX)}
}

// sourceText adds the ports and flags to a translation of the source, and returns the text that
// identifies the translation. The text is the same as for xtables. It is empty if the ports or
// flags are not known.
func (d *ruleDecoder) sourceText(
	t xt.Translation, a attributes, flags uint32, minAttr, maxAttr uint16,
) string {
	const known = unix.NF_NAT_RANGE_MAP_IPS | unix.NF_NAT_RANGE_PROTO_SPECIFIED |
		unix.NF_NAT_RANGE_PROTO_RANDOM | unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY |
		unix.NF_NAT_RANGE_PERSISTENT
	var ok bool
	if t.Port, t.Last, ok = d.natPorts(a, minAttr, maxAttr); !ok || flags&^known != 0 ||
		contradictsPort(flags, t.Port) {
		return ""
	}
	t.SetFlags(flags)
	return t.String()
}

// decodeNAT decodes source NAT and destination NAT.
func (d *ruleDecoder) decodeNAT(a attributes) error {
	if a.Number(unix.NFTA_NAT_TYPE) == unix.NFT_NAT_SNAT {
		return d.decodeSourceNAT(a)
	}
	r, ok := d.mappedRegister(a, unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX,
		unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
	if ok {
		return d.decodeMapBranches(r, func(branch *ruleDecoder) error { return branch.decodeNAT(a) })
	}
	first, last, ok := d.natPorts(a, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
	flags, okFlags := natFlags(a)
	if !ok || !okFlags || contradictsPort(flags, first) ||
		a.Number(unix.NFTA_NAT_TYPE) != unix.NFT_NAT_DNAT ||
		flags&^(unix.NF_NAT_RANGE_MAP_IPS|unix.NF_NAT_RANGE_PROTO_SPECIFIED|
			unix.NF_NAT_RANGE_PERSISTENT) != 0 {
		return errUnsupported
	}
	family := a.Number(unix.NFTA_NAT_FAMILY)
	var action rules.Action = rules.DNATPort{Port: first, Last: last}
	if a.Get(unix.NFTA_NAT_REG_ADDR_MIN) != nil {
		addr, lastAddr, ok := d.natAddrs(a, family)
		if !ok || lastAddr.IsValid() && flags&unix.NF_NAT_RANGE_PERSISTENT != 0 {
			// With the flag, the choice of the address ignores the original destination
			// (find_best_ips_proto in net/netfilter/nf_nat_core.c).
			return errUnsupported
		}
		action = rules.DNATTo{Addr: addr, LastAddr: lastAddr, Port: first, Last: last}
	} else if first == 0 {
		return errUnsupported
	}
	return d.addTranslation(family, action)
}

// addTranslation adds a NAT action that applies to packets of a family.
func (d *ruleDecoder) addTranslation(family uint32, action rules.Action) error {
	if err := d.limitNAT(family); err != nil {
		return err
	}
	d.addAction(action)
	return nil
}

// limitNAT limits the rule to packets of the family of a NAT expression.
func (d *ruleDecoder) limitNAT(family uint32) error {
	// For packets of the other family the kernel continues with the next expression
	// (nft_nat_inet_eval in net/netfilter/nft_nat.c). The match of the family is correct only if
	// there is no next expression.
	before := ruleLength{len(d.rule.Matches), len(d.rule.Actions)}
	previous := d.family
	if err := d.limitFamily(family); err != nil {
		return err
	}
	if d.family != previous {
		d.undo = &before
	}
	return nil
}

// addrLength returns the length in bytes of an address of a family (NFPROTO_IPV4 or NFPROTO_IPV6).
// It returns 0 for any other family.
func addrLength(family uint32) int {
	switch family {
	case unix.NFPROTO_IPV4:
		return 4
	case unix.NFPROTO_IPV6:
		return 16
	}
	return 0
}

// natAddrs returns the first and the last new address. The last address is invalid if it is missing
// or equals the first.
func (d *ruleDecoder) natAddrs(a attributes, family uint32) (first, last netip.Addr, ok bool) {
	length := addrLength(family)
	value, ok := d.constantAt(a, unix.NFTA_NAT_REG_ADDR_MIN, length)
	if !ok || length == 0 {
		return first, last, false
	}
	first, _ = netip.AddrFromSlice(value)
	if a.Get(unix.NFTA_NAT_REG_ADDR_MAX) == nil {
		return first, last, true
	}
	if value, ok = d.constantAt(a, unix.NFTA_NAT_REG_ADDR_MAX, length); !ok {
		return first, last, false
	}
	last, _ = netip.AddrFromSlice(value)
	if last == first {
		last = netip.Addr{}
	}
	return first, last, !last.IsValid() || first.Less(last)
}

// decodeTProxy decodes a tproxy expression. The expression ends the rule for packets of protocols
// other than TCP and UDP, for packets of other families, and for packets for which the kernel finds
// no socket. Port 0 means the destination port of the packet, and the unspecified address means no
// address.
func (d *ruleDecoder) decodeTProxy(a attributes) error {
	action := rules.TProxy{}
	if a.Get(expr.NFTA_TPROXY_REG_PORT) != nil {
		value, ok := d.constantAt(a, expr.NFTA_TPROXY_REG_PORT, 2)
		if !ok {
			return errUnsupported
		}
		action.Port, _ = networkNumber[uint16](value)
	}
	family := a.Number(expr.NFTA_TPROXY_FAMILY)
	if a.Get(expr.NFTA_TPROXY_REG_ADDR) != nil {
		value, ok := d.constantAt(a, expr.NFTA_TPROXY_REG_ADDR, addrLength(family))
		if !ok || len(value) == 0 {
			return errUnsupported
		}
		if addr, _ := netip.AddrFromSlice(value); !addr.IsUnspecified() {
			action.Addr = addr
		}
	}
	if err := d.limitFamily(family); err != nil {
		return err
	}
	if !d.limitedTo(rules.TCP, rules.UDP) {
		d.addMatch(rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP, rules.UDP}})
	}
	d.addAction(action)
	return nil
}

// limitFamily limits the rule to packets of a family (an NFPROTO constant). It returns an error if
// the rule is already limited to another family. NFPROTO_UNSPEC limits nothing.
func (d *ruleDecoder) limitFamily(nfproto uint32) error {
	f, ok := decodeFamily(uint8(nfproto))
	switch {
	case nfproto == unix.NFPROTO_UNSPEC:
		return nil
	case !ok || nfproto > 0xff:
		return errUnsupported
	case f == rules.Inet || f == d.family:
		return nil
	case d.family != rules.Inet:
		return errUnsupported
	}
	d.addMatch(rules.MatchFamily{Family: f})
	return nil
}

// nft's names of the "destination unreachable" codes, by number: of ICMP (RFC 792, 1122, 1812), of
// ICMPv6 (RFC 4443), and of icmpx, which stands for both.
var (
	rejectICMP = [...]string{
		0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable",
		9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited",
	}
	rejectICMPv6 = [...]string{
		0: "no-route", 1: "admin-prohibited", 3: "addr-unreachable", 4: "port-unreachable",
		5: "policy-fail", 6: "reject-route",
	}
	rejectBoth = [...]string{
		0: "no-route", 1: "port-unreachable", 2: "host-unreachable", 3: "admin-prohibited",
	}
)

// RejectCode returns the "destination unreachable" code for nft's name of it. The kind is icmp,
// icmpv6 or icmpx. RejectCode returns false if the kind or the name is unknown.
func RejectCode(kind, name string) (uint8, bool) {
	names := map[string][]string{
		"icmp": rejectICMP[:], "icmpv6": rejectICMPv6[:], "icmpx": rejectBoth[:],
	}[kind]
	i := slices.Index(names, name)
	return uint8(i), i >= 0 && name != ""
}

// decodeReject decodes a reject expression, which drops the packet and sends an ICMP error or a TCP
// reset to its source.
func (d *ruleDecoder) decodeReject(a attributes) error {
	code := uint8(0)
	if value := a.Get(unix.NFTA_REJECT_ICMP_CODE); len(value) == 1 {
		code = value[0]
	}
	names, kind := rejectBoth[:], "icmpx"
	switch a.Number(unix.NFTA_REJECT_TYPE) {
	case unix.NFT_REJECT_TCP_RST:
		d.addAction(rules.Reject{With: "tcp reset"})
		return nil
	case unix.NFT_REJECT_ICMP_UNREACH:
		switch d.family {
		case rules.IPv4:
			names, kind = rejectICMP[:], "icmp"
		case rules.IPv6:
			names, kind = rejectICMPv6[:], "icmpv6"
		default:
			return errUnsupported
		}
	case unix.NFT_REJECT_ICMPX_UNREACH:
	default:
		return errUnsupported
	}
	name := fmt.Sprint(code)
	if int(code) < len(names) {
		name = cmp.Or(names[code], name)
	}
	d.addAction(rules.Reject{With: kind + " " + name})
	return nil
}
