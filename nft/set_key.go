package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// This file encodes and decodes keys. A key is a value in the form that the kernel compares with
// packets and stores in sets.

// portBytes encodes a port in network byte order.
func portBytes(port uint16) []byte { return binary.BigEndian.AppendUint16(nil, port) }

// hostBytes encodes a number in host byte order, as in registers and in sets of single numbers.
func hostBytes(n uint32) []byte { return native.AppendUint32(nil, n) }

// networkBytes encodes a number in network byte order, as in intervals.
func networkBytes(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// interfaceBytes encodes an interface name with padding, or a prefix of names without padding.
func interfaceBytes(n rules.InterfaceName) []byte {
	if n.Prefix {
		return []byte(n.Name)
	}
	key := make([]byte, interfaceNameLength)
	copy(key, n.Name)
	return key
}

// hasInterval reports whether a range contains several numbers.
func hasInterval[T uint16 | uint32](ranges []rules.Range[T]) bool {
	return slices.ContainsFunc(ranges, func(r rules.Range[T]) bool { return !r.IsSingle() })
}

// addrRange decodes an interval of addresses. It returns false if the interval is invalid.
func addrRange(first, last []byte) (netipx.IPRange, bool) {
	a, okA := netip.AddrFromSlice(first)
	b, okB := netip.AddrFromSlice(last)
	r := netipx.IPRangeFrom(a, b)
	return r, okA && okB && r.IsValid()
}

// keyText formats a key for error messages.
func keyText(key []byte) string {
	if a, ok := netip.AddrFromSlice(key); ok {
		return a.String()
	}
	return fmt.Sprintf("0x%x", key)
}

// networkNumber decodes a number in network byte order. It returns false if the key does not have
// the size of T.
func networkNumber[T uint16 | uint32](key []byte) (T, bool) {
	switch any(T(0)).(type) {
	case uint16:
		if len(key) == 2 {
			return T(binary.BigEndian.Uint16(key)), true
		}
	case uint32:
		if len(key) == 4 {
			return T(binary.BigEndian.Uint32(key)), true
		}
	}
	return 0, false
}
