package xt

import (
	"errors"

	"github.com/sluice-mesh/sluice/rules"
)

// natPort is the flag of NAT to a port (NF_NAT_RANGE_PROTO_SPECIFIED). Others choose an address, or a port by chance.
const natPort = 1 << 1

// Where struct nf_nat_ipv4_multi_range_compat and struct nf_nat_range have their fields. Ports are a range, in network order.
const (
	rangeCount4 = 0 // of ranges: always one
	rangeFlags4 = 4
	rangePort4  = 16
	rangeSize4  = 20

	rangeFlags = 0
	rangePort  = 4 + 2*addrSize
	rangeSize  = 40
	// struct nf_nat_range2 has one more port, which is not used without a flag.
	rangeSize2 = 44
)

// decodePort4 reads the port of a struct nf_nat_ipv4_multi_range_compat that asks for no more.
func decodePort4(info []byte) (uint16, bool) {
	if len(info) < rangeSize4 || native.Uint32(info[rangeCount4:]) != 1 || native.Uint32(info[rangeFlags4:]) != natPort {
		return 0, false
	}
	return singlePort(info[rangePort4:])
}

// decodePort reads the port of a struct nf_nat_range, or one of another size that begins so, that asks for no more.
func decodePort(info []byte, size int) (uint16, bool) {
	if len(info) < size || native.Uint32(info[rangeFlags:]) != natPort {
		return 0, false
	}
	return singlePort(info[rangePort:])
}

func singlePort(ports []byte) (uint16, bool) {
	first, last := network.Uint16(ports), network.Uint16(ports[2:])
	return first, first == last && first != 0
}

// encodeNAT gives a target the structure that asks for a port: IPv4's that of revision 0, IPv6's struct nf_nat_range.
func encodeNAT(family rules.Family, x Extension, port uint16) (Extension, error) {
	if port == 0 {
		return x, errors.New("NAT to port 0")
	}
	size, flags, at := rangeSize, rangeFlags, rangePort
	if family == rules.IPv4 {
		size, flags, at = rangeSize4, rangeFlags4, rangePort4
	}
	x.Data = make([]byte, size)
	if family == rules.IPv4 {
		native.PutUint32(x.Data[rangeCount4:], 1)
	}
	native.PutUint32(x.Data[flags:], natPort)
	network.PutUint16(x.Data[at:], port)
	network.PutUint16(x.Data[at+2:], port)
	return x, nil
}

func decodeRedirect(family rules.Family, info []byte) rules.Action {
	var port uint16
	var ok bool
	switch family {
	case rules.IPv4:
		port, ok = decodePort4(info)
	case rules.IPv6:
		port, ok = decodePort(info, rangeSize)
	}
	if !ok {
		return nil
	}
	return rules.RedirectTo{Port: port}
}

// decodeDNAT reads a DNAT that leaves the address as it is. Revision 0 is IPv4's, the others are for both families.
func decodeDNAT(family rules.Family, revision uint32, info []byte) rules.Action {
	var port uint16
	var ok bool
	switch {
	case revision == 0 && family == rules.IPv4:
		port, ok = decodePort4(info)
	case revision == 1:
		port, ok = decodePort(info, rangeSize)
	case revision == 2:
		port, ok = decodePort(info, rangeSize2)
	}
	if !ok {
		return nil
	}
	return rules.DNATPort{Port: port}
}

func encodeDNAT(family rules.Family, a rules.DNATPort) (Extension, error) {
	x := Extension{Name: "DNAT"}
	if family == rules.IPv6 {
		x.Revision = 1
	}
	return encodeNAT(family, x, a.Port)
}
