package nftlist

import (
	"encoding/binary"
	"encoding/json"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A writableField describes how nft sets a field of the network header. nft loads the bytes that
// contain the field, changes the bits of the field, and writes the bytes. It does not load bytes
// that the field fills. In IPv4 the bytes are complete 16-bit words, for which the kernel updates
// the checksum.
type writableField struct {
	datatype
	offset, length uint32 // of the bytes in the header
	bits           uint16 // the bits of the field in these bytes
	shift          int    // the position of the lowest of these bits
}

// writableFields contains the fields that nft can set, by protocol and name.
var writableFields = table[writableField]{
	{"ip dscp", writableField{dscpType, 0, 2, 0x00fc, 2}},
	{"ip ecn", writableField{ecnType, 0, 2, 0x0003, 0}},
	{"ip ttl", writableField{byteType, 8, 2, 0xff00, 8}},
	{"ip6 dscp", writableField{dscpType, 0, 2, 0x0fc0, 6}},
	{"ip6 ecn", writableField{ecnType, 1, 1, 0x30, 4}},
	{"ip6 hoplimit", writableField{byteType, 7, 1, 0xff, 0}},
}

// writeHeader translates a statement that sets a field of the network header to a constant.
func (c *compiler) writeHeader(field, value json.RawMessage) bool {
	var object struct{ Protocol, Field string }
	if !exactly(field, &object) {
		return false
	}
	f, ok := writableFields.find(object.Protocol + " " + object.Field)
	if !ok {
		return false
	}
	data, ok := f.scalar(value, false)
	if !ok || uint16(data[0])<<f.shift&^f.bits != 0 || !c.needNetwork(object.Protocol) {
		return false
	}
	inBytes := func(n uint16) []byte {
		return binary.BigEndian.AppendUint16(nil, n)[2-f.length:]
	}
	reg := c.allocate(int(f.length))
	set := inBytes(uint16(data[0]) << f.shift)
	if kept := inBytes(^f.bits); f.length == 1 && kept[0] == 0 {
		c.add(&expr.Immediate{Register: reg.number(), Data: set})
	} else {
		c.add(&expr.Payload{
			DestRegister: reg.number(), Base: expr.PayloadBaseNetworkHeader, Offset: f.offset,
			Len: f.length,
		})
		c.addBitwise(reg, kept, set)
	}
	write := expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: reg.number(),
		Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.length,
	}
	if object.Protocol == "ip" {
		const checksumOffset = 10
		write.CsumType, write.CsumOffset = expr.CsumTypeInet, checksumOffset
	}
	c.add(&write)
	return true
}

// writeOption translates a statement that sets the segment size option of TCP to a constant or to
// the size for the route.
func (c *compiler) writeOption(option, value json.RawMessage) bool {
	const segmentSize, valueOffset, valueLength = 2, 2, 2 // TCPOPT_MSS
	var object struct{ Name, Field string }
	if !exactly(option, &object) || object.Name != "maxseg" || object.Field != "size" {
		return false
	}
	reg := c.allocate(valueLength)
	if data, ok := portType.scalar(value, false); ok {
		c.add(&expr.Immediate{Register: reg.number(), Data: data})
	} else if f, ok := c.field(value); ok && f.encodesLike(mtuType) {
		c.loadAt(reg, []field{f}, true)
	} else {
		return false
	}
	c.add(&expr.Exthdr{
		SourceRegister: reg.number(), Type: segmentSize, Offset: valueOffset, Len: valueLength,
		Op: unix.NFT_EXTHDR_OP_TCPOPT,
	})
	return true
}

// parseDSCP parses a class of differentiated services (RFC 2474, 2597, 3246, 8622).
func parseDSCP(name string) (uint64, bool) {
	switch {
	case name == "lephb":
		return 1, true
	case name == "ef":
		return 46, true
	case len(name) == 3 && name[:2] == "cs" && '0' <= name[2] && name[2] <= '7':
		return 8 * uint64(name[2]-'0'), true
	case len(name) == 4 && name[:2] == "af" && '1' <= name[2] && name[2] <= '4' &&
		'1' <= name[3] && name[3] <= '3':
		return 8*uint64(name[2]-'0') + 2*uint64(name[3]-'0'), true
	}
	return 0, false
}

// parseECN parses a code point of explicit congestion notification (RFC 3168).
func parseECN(name string) (uint64, bool) {
	points := nameTable{
		{"not-ect", 0}, //nolint:misspell // the name in nft
		{"ect1", 1}, {"ect0", 2}, {"ce", 3},
	}
	return points.find(name)
}
