package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// Where struct xt_tproxy_target_info has an address of IPv4, and xt_tproxy_target_info_v1 one of either family; the port follows, in
// network order.
const (
	tproxyMask  = 0
	tproxyValue = 4
	tproxyAddr  = 8

	tproxySize0 = 16
	tproxySize1 = 28
)

// decodeTProxy reads a TPROXY to the address at which the packet arrived. The mark is set as that of MARK.
func decodeTProxy(family rules.Family, revision uint32, info []byte) rules.Action {
	size, portAt := tproxySize1, tproxyAddr+addrSize
	if revision == 0 {
		size, portAt = tproxySize0, tproxyAddr+4
		if family != rules.IPv4 {
			return nil
		}
	}
	if len(info) < size {
		return nil
	}
	for _, b := range info[tproxyAddr:portAt] {
		if b != 0 {
			return nil
		}
	}
	a := rules.TProxyDrop{
		Port: network.Uint16(info[portAt:]), Value: native.Uint32(info[tproxyValue:]), Mask: native.Uint32(info[tproxyMask:]),
	}
	if a.Port == 0 || a.Value&^a.Mask != 0 {
		return nil // the port that the packet asks for; or bits are flipped
	}
	return a
}

func encodeTProxy(a rules.TProxyDrop) (Extension, error) {
	if a.Port == 0 || a.Value&^a.Mask != 0 {
		return Extension{}, fmt.Errorf("%s: it has no port, or bits of the mark are outside of the mask", a)
	}
	data := make([]byte, tproxySize1)
	native.PutUint32(data[tproxyMask:], a.Mask)
	native.PutUint32(data[tproxyValue:], a.Value)
	network.PutUint16(data[tproxyAddr+addrSize:], a.Port)
	return Extension{Name: "TPROXY", Revision: 1, Data: data}, nil
}
