package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// This file encodes and decodes keys. A key is a value in the form that the kernel compares with
// packets and stores in sets.

func portKey(port uint16) []byte { return binary.BigEndian.AppendUint16(nil, port) }

func hostKey(n uint32) []byte { return native.AppendUint32(nil, n) }

func networkKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func addrKey(a netip.Addr) []byte { return a.AsSlice() }

// appendAddr appends the result of addrKey without an allocation.
func appendAddr(key []byte, a netip.Addr) []byte {
	if a.Is4() {
		bytes := a.As4()
		return append(key, bytes[:]...)
	}
	bytes := a.As16()
	return append(key, bytes[:]...)
}

// interfaceKey returns a complete name with its padding, or the prefix of a name without padding.
func interfaceKey(n rules.InterfaceName) []byte {
	if n.Prefix {
		return []byte(n.Name)
	}
	key := make([]byte, interfaceNameLength)
	copy(key, n.Name)
	return key
}

func hasInterval[T uint16 | uint32](ranges []rules.Range[T]) bool {
	for _, r := range ranges {
		if !r.IsSingle() {
			return true
		}
	}
	return false
}

// addrRange decodes an interval of addresses.
func addrRange(first, last []byte) (netipx.IPRange, bool) {
	a, okA := netip.AddrFromSlice(first)
	b, okB := netip.AddrFromSlice(last)
	r := netipx.IPRangeFrom(a, b)
	return r, okA && okB && r.IsValid()
}

// formatKey formats a key for error messages.
func formatKey(key []byte) string {
	if a, ok := netip.AddrFromSlice(key); ok {
		return a.String()
	}
	return fmt.Sprintf("0x%x", key)
}

// numberKey decodes a number of 2 or 4 bytes in network byte order.
func numberKey[T uint16 | uint32](key []byte) (T, bool) {
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

// hostNumber decodes a number of 4 bytes in host byte order.
func hostNumber(key []byte) (uint32, bool) {
	if len(key) != 4 {
		return 0, false
	}
	return native.Uint32(key), true
}
