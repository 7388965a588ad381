package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// Addresses returns the addresses of the namespace's interfaces in the kernel's order, IPv4 before
// IPv6. It omits loopback, link-local and multicast addresses. Istio decides from these addresses
// whether a pod has IPv6 (net.InterfaceAddrs in its tools/istio-iptables/pkg/config). Addresses
// omits [rules.PassthroughIPv6] too, because a redirection adds it to pods without IPv6.
func Addresses(ns *netns.NS) ([]netip.Addr, error) {
	addrs, err := AllAddresses(ns)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
			a == rules.PassthroughIPv6()
	}), nil
}

// AllAddresses returns all addresses of the namespace's interfaces, in the order of [Addresses].
func AllAddresses(ns *netns.NS) (addrs []netip.Addr, err error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.addresses()
}

// addresses returns all addresses of the namespace's interfaces.
func (c conn) addresses() ([]netip.Addr, error) {
	return listAll("addresses", func() (addrs []netip.Addr, err error) {
		err = c.forEachAddress(func(_ int, a netip.Addr) { addrs = append(addrs, a) })
		return addrs, err
	})
}

// forEachAddress calls visit with each address of an interface and the index of the interface. The
// body of a message begins with a struct ifaddrmsg: family, prefix length, flags, scope, and the
// index in 32 bits.
func (c conn) forEachAddress(visit func(index int, a netip.Addr)) error {
	visited := 0
	return c.exchange(addressesRequest(), func(m nlmsg.Message) error {
		if m.Type != unix.RTM_NEWADDR || len(m.Body) < unix.SizeofIfAddrmsg {
			return nil
		}
		own := ownAddress(nlmsg.Attributes(m.Body[unix.SizeofIfAddrmsg:]))
		if !own.IsValid() {
			return nil
		}
		if visited++; visited > maxObjects {
			return tooMany("addresses", maxObjects)
		}
		visit(int(native.Uint32(m.Body[4:])), own)
		return nil
	})
}

// ownAddress returns the interface's own address from the attributes of an address message, or the
// zero Addr if they contain no IP address. If IFA_LOCAL is present, IFA_ADDRESS is the address of
// the peer.
func ownAddress(a nlmsg.Attributes) netip.Addr {
	local, _ := netip.AddrFromSlice(a.Get(unix.IFA_LOCAL))
	addr, _ := netip.AddrFromSlice(a.Get(unix.IFA_ADDRESS))
	return cmp.Or(local, addr)
}

// LoopbackName returns the name of the namespace's loopback interface. A process with CAP_NET_ADMIN
// can rename the interface, and give the name lo to another interface.
func LoopbackName(ns *netns.NS) (name string, err error) {
	read := func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		request, err := unix.NewIfreq("")
		if err != nil {
			return err
		}
		request.SetUint32(netns.LoopbackIndex)
		err = unix.IoctlIfreq(fd, unix.SIOCGIFNAME, request)
		name = request.Name()
		return err
	}
	if err := ns.Do(read); err != nil {
		return "", fmt.Errorf("read the name of the loopback interface: %w", err)
	}
	return name, nil
}
