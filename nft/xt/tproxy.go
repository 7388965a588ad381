package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// Offsets and sizes of struct xt_tproxy_target_info, which has an IPv4 address, and
// xt_tproxy_target_info_v1, which has an address of either family. The port follows the address, in
// network byte order.
const (
	tproxyMask  = 0
	tproxyValue = 4
	tproxyAddr  = 8

	tproxySize0 = 16
	tproxySize1 = 28
)

// decodeTProxy decodes a TPROXY. It returns nil if the structure is invalid for the family or the
// revision. If the address is unspecified, the kernel uses an address of the input interface. If
// the port is 0, it uses the packet's destination port.
func decodeTProxy(family rules.Family, revision uint32, info []byte) rules.Action {
	size, portOffset := tproxySize1, tproxyAddr+addrSize
	if revision == 0 {
		size, portOffset = tproxySize0, tproxyAddr+4
	}
	if len(info) < size || family == rules.Inet || revision == 0 && family != rules.IPv4 {
		return nil
	}
	a := rules.TProxyDrop{
		Port:  network.Uint16(info[portOffset:]),
		Value: native.Uint32(info[tproxyValue:]), Mask: native.Uint32(info[tproxyMask:]),
	}
	if addr := decodeAddr(family, info[tproxyAddr:]); !addr.IsUnspecified() {
		a.Addr = addr
	}
	return a
}

// encodeTProxy encodes a TPROXY of revision 1, which supports both families.
func encodeTProxy(family rules.Family, a rules.TProxyDrop) (Extension, error) {
	if a.Addr.IsValid() && (rules.FamilyOf(a.Addr) != family || a.Addr.IsUnspecified()) {
		return Extension{}, fmt.Errorf(
			"%s: the address must not be 0.0.0.0 or ::, and must be of family %s", a, family)
	}
	data := make([]byte, tproxySize1)
	native.PutUint32(data[tproxyMask:], a.Mask)
	native.PutUint32(data[tproxyValue:], a.Value)
	copy(data[tproxyAddr:], a.Addr.AsSlice())
	network.PutUint16(data[tproxyAddr+addrSize:], a.Port)
	return Extension{Name: "TPROXY", Revision: 1, Data: data}, nil
}
