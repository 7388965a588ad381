package xt

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// Flags of NAT (NF_NAT_RANGE_* in linux/netfilter/nf_nat.h). With others the port is moved by an
// offset, or only the prefix of the address is replaced.
const (
	natAddrs       = 1 << 0
	natPorts       = 1 << 1
	natRandom      = 1 << 2 // ports of the range by chance
	natPersistent  = 1 << 3 // the same address of the range for the same source
	natRandomFully = 1 << 4
)

// Where struct nf_nat_ipv4_multi_range_compat and struct nf_nat_range have their fields. Ports are
// in network order.
const (
	rangeCount4 = 0 // of ranges: always one
	rangeFlags4 = 4
	rangeAddrs4 = 8
	rangePorts4 = 16
	rangeSize4  = 20

	rangeFlags = 0
	rangeAddrs = 4
	rangePorts = 4 + 2*addrSize
	rangeSize  = 40
	// struct nf_nat_range2 has one more port, which is not used without a flag.
	rangeSize2 = 44
)

// A natRange is what NAT changes the destination to. Zero values leave the address or the port as
// it is; a range of one has no last value.
type natRange struct {
	addr, lastAddr netip.Addr
	port, last     uint16
}

// decodeRange4 reads a struct nf_nat_ipv4_multi_range_compat.
func decodeRange4(info []byte) (natRange, bool) {
	if len(info) < rangeSize4 || native.Uint32(info[rangeCount4:]) != 1 {
		return natRange{}, false
	}
	return newRange(native.Uint32(info[rangeFlags4:]), [2]netip.Addr{
		addrAt(rules.IPv4, info[rangeAddrs4:]), addrAt(rules.IPv4, info[rangeAddrs4+4:]),
	}, info[rangePorts4:])
}

// decodeRange reads a struct nf_nat_range, or one of another size that begins so.
func decodeRange(family rules.Family, info []byte, size int) (natRange, bool) {
	if len(info) < size || family == rules.Inet {
		return natRange{}, false
	}
	return newRange(native.Uint32(info[rangeFlags:]), [2]netip.Addr{
		addrAt(family, info[rangeAddrs:]), addrAt(family, info[rangeAddrs+addrSize:]),
	}, info[rangePorts:])
}

// newRange returns the range if the model can say it: without flags that do more than to choose
// addresses and ports. How one of a range is chosen has no meaning where there is only one.
func newRange(flags uint32, addrs [2]netip.Addr, ports []byte) (natRange, bool) {
	var r natRange
	if flags&natAddrs != 0 {
		r.addr = addrs[0]
		switch addrs[0].Compare(addrs[1]) {
		case -1:
			r.lastAddr = addrs[1]
		case 1:
			return r, false
		}
	}
	if flags&natPorts != 0 {
		first, last := network.Uint16(ports), network.Uint16(ports[2:])
		if first == 0 || last < first {
			return r, false
		}
		r.port = first
		if last > first {
			r.last = last
		}
	}
	const random = natRandom | natRandomFully
	ok := flags&^(natAddrs|natPorts|natPersistent|random) == 0 &&
		(flags&random == 0 || r.port != 0 && r.last == 0) &&
		(flags&natPersistent == 0 || !r.lastAddr.IsValid())
	return r, ok
}

// encode4 writes IPv4's structure of revision 0.
func (r natRange) encode4() []byte {
	data := make([]byte, rangeSize4)
	native.PutUint32(data[rangeCount4:], 1)
	r.put(data[rangeFlags4:], data[rangeAddrs4:], data[rangeAddrs4+4:], data[rangePorts4:])
	return data
}

// encode writes a struct nf_nat_range, or one of another size that begins so.
func (r natRange) encode(size int) []byte {
	data := make([]byte, size)
	r.put(data[rangeFlags:], data[rangeAddrs:], data[rangeAddrs+addrSize:], data[rangePorts:])
	return data
}

func (r natRange) put(flags, first, last, ports []byte) {
	var bits uint32
	if r.addr.IsValid() {
		bits |= natAddrs
		copy(first, r.addr.AsSlice())
		lastAddr := r.addr
		if r.lastAddr.IsValid() {
			lastAddr = r.lastAddr
		}
		copy(last, lastAddr.AsSlice())
	}
	if r.port != 0 {
		bits |= natPorts
		network.PutUint16(ports, r.port)
		network.PutUint16(ports[2:], max(r.port, r.last))
	}
	native.PutUint32(flags, bits)
}

// check reports what no structure of the family can say.
func (r natRange) check(family rules.Family) error {
	switch {
	case r.last != 0 && r.last < r.port, r.last != 0 && r.port == 0:
		return fmt.Errorf("ports %d-%d are no range from port 1 on", r.port, r.last)
	case r.addr.IsValid() && rules.FamilyOf(r.addr) != family:
		return fmt.Errorf("address %s is not of family %s", r.addr, family)
	case r.lastAddr.IsValid() && (r.addr.BitLen() != r.lastAddr.BitLen() || r.lastAddr.Less(r.addr)):
		return fmt.Errorf("addresses %s-%s are no range", r.addr, r.lastAddr)
	}
	return nil
}

// decodeRedirect reads the structure of REDIRECT: IPv4's is that of revision 0 of DNAT.
func decodeRedirect(family rules.Family, info []byte) rules.Action {
	var r natRange
	var ok bool
	switch family {
	case rules.IPv4:
		r, ok = decodeRange4(info)
	case rules.IPv6:
		r, ok = decodeRange(family, info, rangeSize)
	}
	if !ok || r.addr.IsValid() {
		return nil
	}
	return rules.RedirectTo{Port: r.port, Last: r.last}
}

func encodeRedirect(family rules.Family, a rules.RedirectTo) (Extension, error) {
	x, r := Extension{Name: "REDIRECT"}, natRange{port: a.Port, last: a.Last}
	if err := r.check(family); err != nil {
		return x, fmt.Errorf("%s: %w", a, err)
	}
	if family == rules.IPv4 {
		x.Data = r.encode4()
	} else {
		x.Data = r.encode(rangeSize)
	}
	return x, nil
}

// decodeDNAT reads the structures of DNAT. Revision 0 is IPv4's, the others are for both families.
func decodeDNAT(family rules.Family, revision uint32, info []byte) rules.Action {
	var r natRange
	var ok bool
	switch {
	case revision == 0 && family == rules.IPv4:
		r, ok = decodeRange4(info)
	case revision == 1:
		r, ok = decodeRange(family, info, rangeSize)
	case revision == 2:
		r, ok = decodeRange(family, info, rangeSize2)
	}
	switch {
	case ok && r.addr.IsValid():
		return rules.DNATTo{Addr: r.addr, LastAddr: r.lastAddr, Port: r.port, Last: r.last}
	case ok && r.port != 0:
		return rules.DNATPort{Port: r.port, Last: r.last}
	}
	return nil
}

func encodeDNAT(family rules.Family, a rules.DNATTo) (Extension, error) {
	r := natRange{a.Addr, a.LastAddr, a.Port, a.Last}
	if !r.addr.IsValid() && r.port == 0 {
		return Extension{}, errors.New("DNAT to port 0")
	}
	if err := r.check(family); err != nil {
		return Extension{}, fmt.Errorf("DNAT: %w", err)
	}
	if family == rules.IPv6 {
		return Extension{Name: "DNAT", Revision: 1, Data: r.encode(rangeSize)}, nil
	}
	return Extension{Name: "DNAT", Data: r.encode4()}, nil
}
