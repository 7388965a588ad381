package nftlist

import (
	"encoding/binary"
	"encoding/json"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// A datatype describes how nft encodes a kind of value in registers and in sets.
type datatype struct {
	kind datakind
	size int // in bytes
	// isHostOrder reports whether numbers are in host byte order, except in intervals.
	isHostOrder bool
	// isPair reports whether values of a map are ranges: two values, the first and the last.
	isPair bool
	// isFlags reports whether a comparison without an operator matches any of the bits.
	isFlags bool
	// bits and shift describe a field that does not fill its bytes: the number of its bits, and the
	// number of bits below them. bits is 0 for other fields.
	bits, shift int
	// parse returns the number that a name stands for. It is nil if values have no names.
	parse func(name string) (uint64, bool)
}

type datakind uint8

const (
	integer datakind = iota
	address
	interfaceName
	boolean
	text      // any name but that of an interface, such as the name of a conntrack helper
	bitNumber // encoded as a mask with this bit
)

var (
	ipv4Type      = datatype{kind: address, size: 4}
	ipv6Type      = datatype{kind: address, size: 16}
	portType      = datatype{size: 2}                       // also of lengths and checksums
	nameType      = datatype{kind: interfaceName, size: 16} // of an interface
	markType      = datatype{size: 4, isHostOrder: true}
	hostIntType   = datatype{size: 4, isHostOrder: true} // of numbers for which nft has no type
	booleanType   = datatype{kind: boolean, size: 1}
	zoneType      = datatype{size: 2, isHostOrder: true}
	etherType     = datatype{size: 2, parse: parseEtherType}
	idType        = datatype{size: 4}                                    // also of sequence numbers
	tcType        = datatype{size: 4, isHostOrder: true, parse: parseTC} // a tc handle
	byteType      = datatype{size: 1}
	protocolType  = datatype{size: 1, parse: parseProtocol}
	l4protoType   = datatype{size: 1, isHostOrder: true, parse: parseProtocol}
	indexType     = datatype{size: 4, isHostOrder: true, parse: parseIndex} // of an interface
	nfprotoType   = datatype{size: 1, isHostOrder: true, parse: parseProtocolFamily}
	directionType = datatype{size: 1, isHostOrder: true, parse: parseDirection}
	stateType     = datatype{size: 4, isHostOrder: true, isFlags: true, parse: parseState}
	statusType    = datatype{size: 4, isHostOrder: true, isFlags: true, parse: parseStatus}
	tcpFlagsType  = datatype{size: 1, isFlags: true, parse: parseTCPFlag}
	addrTypeType  = datatype{size: 4, isHostOrder: true, parse: parseAddrType}
	icmpType      = datatype{size: 1, parse: parseICMPType}
	icmpv6Type    = datatype{size: 1, parse: parseICMPv6Type}
	icmpCode      = datatype{size: 1, parse: parseICMPCode}
	icmpv6Code    = datatype{size: 1, parse: parseICMPv6Code}
	packetType    = datatype{size: 1, parse: parsePacketType}
	deviceType    = datatype{size: 2, isHostOrder: true, parse: parseDeviceType}
	weekdayType   = datatype{size: 1, parse: parseWeekday}
	realmType     = datatype{size: 4, isHostOrder: true, parse: parseRealm} // of a route
	randomType    = datatype{size: 4}
	mtuType       = datatype{size: 2, isHostOrder: true}
	countType     = datatype{size: 8, isHostOrder: true} // of packets or bytes
	labelType     = datatype{kind: bitNumber, size: 16, isHostOrder: true, isFlags: true}
	textType      = datatype{kind: text, size: 16}
	eventType     = datatype{size: 4, isHostOrder: true, isFlags: true, parse: parseEvent}
)

// The types of fields that do not fill their bytes. DSCP is the differentiated services code point,
// and ECN the field for explicit congestion notification.
var (
	highNibbleType = datatype{size: 1, bits: 4, shift: 4}
	lowNibbleType  = datatype{size: 1, bits: 4}
	flowLabelType  = datatype{size: 3, bits: 20}
	dscpType       = datatype{size: 1, bits: 6, parse: parseDSCP}
	ipDSCPType     = datatype{size: 1, bits: 6, shift: 2, parse: parseDSCP}
	ip6DSCPType    = datatype{size: 2, bits: 6, shift: 6, parse: parseDSCP}
	ecnType        = datatype{size: 1, bits: 2, parse: parseECN}
	ip6ECNType     = datatype{size: 1, bits: 2, shift: 4, parse: parseECN}
)

// encodesLike reports whether two types encode values in the same way. It does not compare the
// names of values, because nft lets a set be used only with types that have the same names.
func (t datatype) encodesLike(other datatype) bool {
	return t.kind == other.kind && t.size == other.size && t.isHostOrder == other.isHostOrder &&
		t.isPair == other.isPair && t.bits == other.bits && t.shift == other.shift &&
		(t.parse == nil) == (other.parse == nil)
}

// number encodes a number. A number in an interval is in network byte order, because the kernel
// compares byte by byte. number returns false if n is too large.
func (t datatype) number(n uint64, inInterval bool) ([]byte, bool) {
	if t.size < 8 && n>>(8*t.size) != 0 || t.bits != 0 && n>>t.bits != 0 {
		return nil, false
	}
	n <<= t.shift
	value := make([]byte, max(t.size, 8))
	binary.BigEndian.PutUint64(value[len(value)-8:], n)
	value = value[len(value)-t.size:]
	if t.isHostOrder && !inInterval {
		reverseToHostOrder(value)
	}
	return value, true
}

// reverseToHostOrder converts a number from network to host byte order.
func reverseToHostOrder(value []byte) {
	if isLittleEndian := binary.NativeEndian.Uint16([]byte{1, 0}) == 1; isLittleEndian {
		slices.Reverse(value)
	}
}

// scalar encodes a number, a boolean, a name or an address. It returns false if the type does not
// have the value.
func (t datatype) scalar(e json.RawMessage, inInterval bool) ([]byte, bool) {
	var name string
	var n uint64
	switch isText := json.Unmarshal(e, &name) == nil && isScalar(e); {
	case t.kind == address && isText:
		a, err := netip.ParseAddr(name)
		if err != nil || a.BitLen() != 8*t.size || a.Zone() != "" {
			return nil, false
		}
		return a.AsSlice(), true
	case (t.kind == interfaceName || t.kind == text) && isText:
		key := make([]byte, t.size)
		return key, copy(key, name) == len(name) && name != "" && len(name) < t.size &&
			(t.kind == text || !strings.ContainsAny(name, "*\\\x00"))
	case t.kind == bitNumber:
		if !isScalar(e) || json.Unmarshal(e, &n) != nil || n >= uint64(8*t.size) {
			return nil, false
		}
		value := make([]byte, t.size)
		value[t.size-1-int(n)/8] = 1 << (n % 8)
		reverseToHostOrder(value)
		return value, true
	case t.kind == boolean:
		switch string(e) {
		case "false", "0": // with -n nft writes numbers
			return []byte{0}, true
		case "true", "1":
			return []byte{1}, true
		}
		return nil, false
	case t.kind != integer:
		return nil, false
	case isText:
		if t.parse == nil {
			return nil, false
		}
		var ok bool
		if n, ok = t.parse(name); !ok {
			return nil, false
		}
	case !isScalar(e) || json.Unmarshal(e, &n) != nil:
		return nil, false
	}
	return t.number(n, inInterval)
}

// isScalar reports whether a value is a string or a number that is not negative.
func isScalar(e json.RawMessage) bool {
	return len(e) > 0 && (e[0] == '"' || e[0] >= '0' && e[0] <= '9')
}

// flags encodes a scalar, which may be a flag, a list of flags, or the operation "|" on flags.
func (t datatype) flags(e json.RawMessage) ([]byte, bool) {
	sum := make([]byte, t.size)
	remaining := maxFlags
	return sum, t.addFlags(sum, e, &remaining)
}

// maxFlags is the maximum number of flags and operations in a value.
const maxFlags = 64

// addFlags sets the bits of flags in sum. remaining is the number of flags and operations that the
// value may still have; addFlags decreases it.
func (t datatype) addFlags(sum []byte, e json.RawMessage, remaining *int) bool {
	if *remaining--; *remaining < 0 {
		return false
	}
	if isScalar(e) {
		value, ok := t.scalar(e, false)
		if !ok {
			return false
		}
		for i := range value {
			sum[i] |= value[i]
		}
		return true
	}
	var list []json.RawMessage
	if json.Unmarshal(e, &list) != nil {
		list = listIn(e, "|")
	}
	for _, item := range list {
		if !t.addFlags(sum, item, remaining) {
			return false
		}
	}
	return len(list) > 0
}

// interval encodes a scalar, a range, a prefix, or the beginning of a name followed by an asterisk.
// It returns the first and the last value.
func (t datatype) interval(e json.RawMessage, inInterval bool) (key [2][]byte, ok bool) {
	if bounds := listIn(e, "range"); len(bounds) == 2 {
		first, firstValid := t.scalar(bounds[0], inInterval)
		last, lastValid := t.scalar(bounds[1], inInterval)
		return [2][]byte{first, last}, firstValid && lastValid
	}
	if p, ok := t.prefix(e); ok {
		return prefixInterval(p.Masked().Addr().AsSlice(), p.Bits()), true
	}
	if value, bits, ok := t.highBits(e, inInterval); ok && inInterval {
		return prefixInterval(value, bits), true
	}
	if text, ok := t.wildcard(e); ok {
		key := make([]byte, t.size)
		copy(key, text)
		return prefixInterval(key, 8*len(text)), true
	}
	value, ok := t.scalar(e, inInterval)
	return [2][]byte{value, value}, ok
}

// prefixInterval returns the interval of all values that begin with the given number of bits of
// first. The other bits of first must be 0.
func prefixInterval(first []byte, bits int) [2][]byte {
	last := new(big.Int).SetBytes(first)
	ones := new(big.Int).Lsh(big.NewInt(1), uint(8*len(first)-bits))
	last.Or(last, ones.Sub(ones, big.NewInt(1)))
	return [2][]byte{first, last.FillBytes(make([]byte, len(first)))}
}

// prefix decodes a prefix of addresses.
func (t datatype) prefix(e json.RawMessage) (netip.Prefix, bool) {
	var p struct {
		Prefix struct {
			Addr netip.Addr `json:"addr"`
			Len  *int       `json:"len"`
		} `json:"prefix"`
	}
	if t.kind != address || !exactly(e, &p) || p.Prefix.Len == nil ||
		p.Prefix.Addr.BitLen() != 8*t.size || p.Prefix.Addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	prefix := netip.PrefixFrom(p.Prefix.Addr, *p.Prefix.Len)
	return prefix, prefix.IsValid()
}

// highBits decodes a comparison of the high bits of a mark, which nft lists as a prefix: the mark
// and the number of bits. It encodes the mark like [datatype.number].
func (t datatype) highBits(e json.RawMessage, inInterval bool) (value []byte, bits int, ok bool) {
	var p struct {
		Prefix struct {
			Addr *uint64 `json:"addr"`
			Len  *int    `json:"len"`
		} `json:"prefix"`
	}
	if t.kind != integer || !t.isHostOrder || t.size != 4 || !exactly(e, &p) || p.Prefix.Addr == nil ||
		p.Prefix.Len == nil || *p.Prefix.Len < 0 || *p.Prefix.Len > 8*t.size {
		return nil, 0, false
	}
	value, ok = t.number(*p.Prefix.Addr, inInterval)
	return value, *p.Prefix.Len, ok
}

// mask returns a mask with the given number of highest bits set.
func (t datatype) mask(bits int) []byte {
	mask := make([]byte, t.size)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	if t.isHostOrder {
		reverseToHostOrder(mask)
	}
	return mask
}

// wildcard returns the beginning of an interface name that ends with an asterisk.
func (t datatype) wildcard(e json.RawMessage) (string, bool) {
	var text string
	if t.kind != interfaceName || json.Unmarshal(e, &text) != nil {
		return "", false
	}
	base, ok := strings.CutSuffix(text, "*")
	return base, ok && base != "" && len(base) < t.size && !strings.ContainsAny(base, "*\\\x00")
}
