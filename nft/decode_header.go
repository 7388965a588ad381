package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// This file decodes writes to parts of headers that the model does not represent.

// A headerPart is a part of the network header in a register. The register contains part & mask ^
// xor.
type headerPart struct {
	payload
	mask, xor []byte
}

// newHeaderPart returns the part of the network header that an expression loads, or nil for other
// parts of the packet and for a part that is too long.
func newHeaderPart(p payload) *headerPart {
	if p.base != unix.NFT_PAYLOAD_NETWORK_HEADER || p.length > maxValueLength {
		return nil
	}
	mask := slices.Repeat([]byte{0xff}, int(p.length))
	return &headerPart{payload: p, mask: mask, xor: make([]byte, p.length)}
}

// bitwise returns the part after a bitwise expression, or nil if the result is unknown.
func (h *headerPart) bitwise(a attributes) *headerPart {
	mask, xor := constantValue(a, unix.NFTA_BITWISE_MASK), constantValue(a, unix.NFTA_BITWISE_XOR)
	if h == nil || a.Number(nftaBitwiseOp) != bitwiseMaskXor || len(mask) != len(h.mask) ||
		len(xor) != len(h.mask) {
		return nil
	}
	result := headerPart{h.payload, slices.Clone(mask), slices.Clone(xor)}
	for i := range mask {
		result.mask[i] &= h.mask[i]
		result.xor[i] ^= h.xor[i] & mask[i]
	}
	return &result
}

// A changeableField is a field of the network header that the model does not represent; see
// changeableFields.
type changeableField struct {
	family rules.Family
	offset int    // of the first byte in the header
	bits   []byte // the bits of the field in each of its bytes
	name   string
	state  string // [rules.Unknown.State] of a change
}

// changeableFields contains the fields whose change has at most one effect in the model: the kernel
// may route the packet again (nf_route_table_inet in net/netfilter/nft_chain_route.c). A change of
// IPv4's TTL has no effect.
var changeableFields = [...]changeableField{
	{rules.IPv4, 1, []byte{0xff}, "ip tos", rules.RoutedHeader},
	{rules.IPv4, 8, []byte{0xff}, "ip ttl", "ttl"},
	{rules.IPv6, 0, []byte{0x0f, 0xf0}, "ip6 traffic class", rules.RoutedHeader},
	{rules.IPv6, 7, []byte{0xff}, "ip6 hoplimit", rules.RoutedHeader},
}

// containsChange reports whether writing the part to the header changes only bits of the field.
func (f *changeableField) containsChange(family rules.Family, h *headerPart) bool {
	if f.family != family {
		return false
	}
	for i := range h.mask {
		changed := ^h.mask[i] | h.xor[i]
		if at := int(h.offset) + i - f.offset; at >= 0 && at < len(f.bits) {
			changed &^= f.bits[at]
		}
		if changed != 0 {
			return false
		}
	}
	return true
}

// decodePayloadWrite decodes a write to a part of the packet. For IPv4 the kernel computes the
// checksum correctly only if the written bytes are complete 16-bit words (nft_payload_set_eval in
// net/netfilter/nft_payload.c).
func (d *ruleDecoder) decodePayloadWrite(a attributes, p payload) error {
	const ipv4ChecksumOffset = 10
	op := d.load(a, unix.NFTA_PAYLOAD_SREG)
	part := op.part
	if op.field == fieldConstant && p.base == unix.NFT_PAYLOAD_NETWORK_HEADER {
		part = &headerPart{p, make([]byte, p.length), op.constant}
	}
	checksum, checksumOffset := a.Number(unix.NFTA_PAYLOAD_CSUM_TYPE),
		a.Number(unix.NFTA_PAYLOAD_CSUM_OFFSET)
	hasChecksum := checksum == unix.NFT_PAYLOAD_CSUM_INET &&
		checksumOffset == ipv4ChecksumOffset && p.offset%2 == 0 && p.length%2 == 0
	switch {
	case part == nil || part.payload != p || len(part.xor) != int(p.length),
		a.Number(unix.NFTA_PAYLOAD_CSUM_FLAGS) != 0,
		d.family == rules.IPv4 && !hasChecksum,
		d.family == rules.IPv6 && checksum != unix.NFT_PAYLOAD_CSUM_NONE:
		return errUnsupported
	}
	for _, f := range changeableFields {
		if f.containsChange(d.family, part) {
			d.clearPending(op) // every packet of the family has the changeable fields
			d.addHeaderChange(fmt.Sprintf("%s set @nh,%d,%d & 0x%x ^ 0x%x", f.name, p.offset*8,
				p.length*8, part.mask, part.xor), f.state)
			return nil
		}
	}
	return errUnsupported
}

// addHeaderChange adds an action that sets a part of the header to a constant, or to a value that
// depends only on the part. The text must identify the change.
func (d *ruleDecoder) addHeaderChange(text, state string) {
	d.addAction(rules.Unknown{
		Text: text, Effect: rules.WritesHeader, State: state, Ignores: rules.AllInputs,
	})
}

// decodeHeaderOption decodes a write of TCP's option for the maximum segment size. The expression
// ends the rule for other protocols, and for packets with malformed options, such as an option that
// is longer than the header (nft_exthdr_tcp_set_eval in net/netfilter/nft_exthdr.c).
func (d *ruleDecoder) decodeHeaderOption(a attributes) error {
	const kindMSS, valueOffset = 2, 2 // TCPOPT_MSS
	value := d.load(a, unix.NFTA_EXTHDR_SREG)
	if a.Get(unix.NFTA_EXTHDR_SREG) == nil || a.Get(unix.NFTA_EXTHDR_DREG) != nil ||
		value.noData || value.effect == rules.ReadsVarying ||
		value.field == fieldConstant && len(value.constant) != 2 ||
		a.Number(unix.NFTA_EXTHDR_OP) != unix.NFT_EXTHDR_OP_TCPOPT ||
		len(a.Get(unix.NFTA_EXTHDR_TYPE)) != 1 || a.Get(unix.NFTA_EXTHDR_TYPE)[0] != kindMSS ||
		a.Number(unix.NFTA_EXTHDR_OFFSET) != valueOffset || a.Number(unix.NFTA_EXTHDR_LEN) != 2 {
		return errUnsupported
	}
	if !d.limitedTo(rules.TCP) {
		d.addCondition(rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}})
	}
	d.addUnknown("the options of TCP are well-formed", rules.Reads, "")
	const state = "tcp option maxseg"
	if value.field == fieldConstant {
		d.addHeaderChange(fmt.Sprintf("tcp option maxseg set 0x%x", value.constant), state)
		return nil
	}
	d.requirePending() // the load ends the rule for packets without the value
	d.addCondition(rules.Unknown{
		Text: "tcp option maxseg set " + value.String(), Effect: rules.WritesHeader,
		Data: value.data, State: state,
	})
	return nil
}
