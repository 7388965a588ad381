package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodePayload decodes the load or the write of a part of the packet.
func (d *ruleDecoder) decodePayload(a attributes) error {
	p := payload{
		a.Number(unix.NFTA_PAYLOAD_BASE), a.Number(unix.NFTA_PAYLOAD_OFFSET),
		a.Number(unix.NFTA_PAYLOAD_LEN),
	}
	if a.Get(unix.NFTA_PAYLOAD_SREG) != nil {
		return d.decodePayloadWrite(a, p)
	}
	op := operand{
		field: fieldUnknown, length: int(p.length), effect: rules.Reads, part: newHeaderPart(p),
	}
	setField := func(f field, text string) { op.field, op.text = f, text }
	ports := d.limitedToPorts()
	// An IPv4 packet may contain ICMPv6, and an IPv6 packet ICMP.
	icmp := d.limitedTo(rules.ICMP) && d.family == rules.IPv4
	op.ipv6 = d.limitedTo(rules.ICMPv6) && d.family == rules.IPv6
	switch {
	case icmp || op.ipv6:
		switch p {
		case icmpType:
			setField(fieldICMPType, "icmp type")
		case icmpCode:
			setField(fieldICMPCode, "icmp code")
		case icmpTypeCode:
			setField(fieldICMPTypeCode, "icmp type . code")
		}
	case p == sourcePort:
		setField(fieldSourcePort, "th sport")
		op.hasPorts = ports
	case p == destinationPort:
		setField(fieldDestinationPort, "th dport")
		op.hasPorts = ports
	case p == bothPorts && ports:
		setField(fieldPorts, "th sport . th dport")
	case p == tcpFlags && d.limitedTo(rules.TCP):
		setField(fieldTCPFlags, "tcp flags")
	case p == ipv4Protocol && d.family == rules.IPv4:
		setField(fieldProtocol, "ip protocol")
	}
	if p.base == unix.NFT_PAYLOAD_NETWORK_HEADER && d.family != rules.Inet {
		// For a prefix whose length is a multiple of 8 bits, rules may load only the leading bytes.
		for side, addr := range [...]field{
			rules.Source: fieldSource, rules.Destination: fieldDestination,
		} {
			whole := addrField(d.family, rules.Side(side))
			if p.offset == whole.offset && p.length <= whole.length && p.length > 0 {
				setField(addr, d.family.String()+" "+[...]string{"saddr", "daddr"}[side])
			}
		}
	}
	if op.text == "" {
		op.text = p.String()
	}
	return d.storePending(a, unix.NFTA_PAYLOAD_DREG, op)
}

// String returns the location of the field in nft's syntax: the base, and the offset and the length
// in bits.
func (p payload) String() string {
	base := fmt.Sprintf("%d", p.base)
	if names := [...]string{"ll", "nh", "th", "ih"}; p.base < uint32(len(names)) {
		base = names[p.base]
	}
	return fmt.Sprintf("@%s,%d,%d", base, uint64(p.offset)*8, uint64(p.length)*8)
}

// limitedTo reports whether earlier matches limit the rule to packets of the protocols.
func (d *ruleDecoder) limitedTo(protocols ...rules.Protocol) bool {
	return d.isLimited && len(d.protocols) > 0 &&
		!slices.ContainsFunc(d.protocols, func(p rules.Protocol) bool {
			return !slices.Contains(protocols, p)
		})
}

// limitedToPorts reports whether earlier matches limit the rule to packets of protocols with ports.
func (d *ruleDecoder) limitedToPorts() bool {
	return d.limitedTo(rules.TCP, rules.UDP, rules.SCTP, rules.DCCP, rules.UDPLite)
}

// limitBy records the family and the protocols to which a match limits the rule.
func (d *ruleDecoder) limitBy(m rules.Match) {
	switch m := m.(type) {
	case rules.MatchFamily:
		if d.family == rules.Inet {
			d.family = m.Family
		}
	case rules.MatchProtocol:
		if m.Not {
			return
		}
		if !d.isLimited {
			d.isLimited, d.protocols = true, m.Protocols
			return
		}
		d.protocols = slices.DeleteFunc(slices.Clone(d.protocols), func(p rules.Protocol) bool {
			return !slices.Contains(m.Protocols, p)
		})
	}
}
