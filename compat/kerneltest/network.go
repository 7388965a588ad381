package kerneltest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	nfnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/testbed"
)

// interfaces contains the interfaces of the pod except lo. eth2 is up, but has no address.
var interfaces = []string{"eth0", "eth1", "eth2"}

// LocalMark is the mark of packets that the pod routes to itself.
const LocalMark = 0x539

// addresses contains the addresses of the pod's interfaces, in the order in which they are added.
var addresses = []struct{ device, prefix string }{
	{"eth0", "10.244.1.5/24"},
	{"eth0", "10.1.2.3/32"},
	{"eth0", "fd00:10:244:1::5/64"},
	{"eth0", "fd00:1::2/128"},
	{"eth0", "fe80::5/64"},
	{"eth1", "10.0.2.1/24"},
	{"eth1", "fd00:10:0:2::1/64"},
	{"lo", "::6/128"},
}

// A Network is a pod with the interfaces lo, eth0, eth1 and eth2, and the peers of eth0, eth1 and
// eth2. It is not safe for concurrent use.
type Network struct {
	Pod *netns.NS

	peer          *netns.NS // contains the peers of all interfaces
	devices       map[string]*device
	nameOfIndex   map[uint32]string // the names of the pod's interfaces
	rawSockets    map[rawKey]int    // file descriptors
	listenerFDs   []int             // of openListeners
	openListeners []Listener
	log           *nfnetlink.Conn
	conntrack     *nfnetlink.Conn
	tables        *nftables.Conn
	legacy        map[legacyTable]bool // the tables that were loaded since Reset
	// token is the token of the last packet. Each packet contains its own token, which identifies
	// the packet in the log.
	token uint32
	// innerCount is the number of packets sent in ICMP errors. It determines the source port of the
	// next such packet.
	innerCount uint32
}

// A device is an interface of the pod, with a packet socket that writes frames to it.
type device struct {
	index     int
	mac       net.HardwareAddr
	peerIndex int          // index of the other end in the peer's namespace
	fd        int          // packet socket of the other end; -1 for lo
	addrs     []netip.Addr // in the kernel's order
}

// NewNetwork creates a network, and waits until the network delivers packets. The error wraps
// [unix.EPERM] if the process lacks CAP_SYS_ADMIN or CAP_NET_ADMIN.
func NewNetwork() (*Network, error) {
	n := &Network{
		devices: map[string]*device{}, nameOfIndex: map[uint32]string{},
		rawSockets: map[rawKey]int{},
	}
	for _, step := range []struct {
		title string
		do    func() error
	}{
		{"make the namespaces", n.makeNamespaces},
		{"set the sysctls", n.setSysctls},
		{"make the interfaces", n.makeInterfaces},
		{"add addresses and routes", n.addAddressesAndRoutes},
		{"open packet sockets", n.openPacketSockets},
		{"open netfilter sockets", n.openNetfilterSockets},
		{"configure the log", n.configureLog},
		{"open nftables", n.openTables},
		{"load the observer", n.loadObserver},
		{"wait for the addresses", n.waitForAddresses},
		{"wait for the links", n.waitForLinks},
	} {
		if err := step.do(); err != nil {
			err = fmt.Errorf("make a network: %s: %w", step.title, err)
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// Close closes the sockets and the namespaces.
func (n *Network) Close() error {
	var errs []error
	n.CloseListeners()
	for _, fd := range n.rawSockets {
		errs = append(errs, unix.Close(fd))
	}
	for _, d := range n.devices {
		if d.fd >= 0 {
			errs = append(errs, unix.Close(d.fd))
		}
	}
	for _, conn := range []*nfnetlink.Conn{n.log, n.conntrack} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	if n.tables != nil {
		errs = append(errs, n.tables.CloseLasting())
	}
	for _, ns := range []*netns.NS{n.Pod, n.peer} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	*n = Network{}
	return errors.Join(errs...)
}

func (n *Network) makeNamespaces() (err error) {
	if n.Pod, err = netns.New(); err != nil {
		return err
	}
	n.peer, err = netns.New()
	return err
}

func (n *Network) setSysctls() error {
	set := func(ns *netns.NS, values map[string]string) error {
		return ns.Do(func() error {
			for name, value := range values {
				if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(set(n.Pod, map[string]string{
		"ipv4/conf/all/rp_filter":     "0",
		"ipv4/conf/default/rp_filter": "0",
		// Do not limit the rate of answers to rejected packets.
		"ipv4/icmp_ratelimit": "0",
		"ipv4/icmp_ratemask":  "0",
		"ipv6/icmp/ratelimit": "0",
		// Use the added IPv6 addresses immediately, and create no others.
		"ipv6/conf/default/accept_dad":    "0",
		"ipv6/conf/default/addr_gen_mode": "1", // IN6_ADDR_GEN_MODE_NONE
		"ipv6/conf/default/accept_ra":     "0",
	}), set(n.peer, map[string]string{"ipv6/conf/default/disable_ipv6": "1"}))
}

// withRouteSocket runs fn with a route netlink socket of the namespace.
func withRouteSocket(ns *netns.NS, fn func(*netlink.Handle) error) error {
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

func (n *Network) makeInterfaces() error {
	return withRouteSocket(n.Pod, func(h *netlink.Handle) error {
		for _, name := range interfaces {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			veth := &netlink.Veth{
				LinkAttrs: attrs, PeerName: name,
				PeerNamespace: netlink.NsFd(n.peer.FD()),
			}
			if err := h.LinkAdd(veth); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		for _, name := range append([]string{"lo"}, interfaces...) {
			l, err := h.LinkByName(name)
			if err != nil {
				return err
			}
			if err := h.LinkSetUp(l); err != nil {
				return err
			}
			index := l.Attrs().Index
			n.devices[name] = &device{index: index, mac: l.Attrs().HardwareAddr, fd: -1}
			n.nameOfIndex[uint32(index)] = name
		}
		return n.setUpPeers()
	})
}

// setUpPeers sets the other ends of the interfaces up, and stores their indexes.
func (n *Network) setUpPeers() error {
	return withRouteSocket(n.peer, func(h *netlink.Handle) error {
		for _, name := range interfaces {
			l, err := h.LinkByName(name)
			if err != nil {
				return err
			}
			if err := h.LinkSetUp(l); err != nil {
				return err
			}
			n.devices[name].peerIndex = l.Attrs().Index
		}
		return nil
	})
}

func (n *Network) addAddressesAndRoutes() error {
	return withRouteSocket(n.Pod, func(h *netlink.Handle) error {
		for _, a := range addresses {
			l, err := h.LinkByName(a.device)
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(a.prefix)
			if err != nil {
				return err
			}
			if addr.IP.To4() == nil {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := h.AddrAdd(l, addr); err != nil {
				return fmt.Errorf("%s: %w", a.prefix, err)
			}
		}
		for _, gateway := range []string{"10.244.1.1", "fd00:10:244:1::1"} {
			if err := h.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
				return fmt.Errorf("default route by %s: %w", gateway, err)
			}
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			if err := n.routeLocalMark(h, family); err != nil {
				return err
			}
		}
		return n.readAddresses(h)
	})
}

// waitForAddresses waits until the kernel delivers packets to the IPv6 addresses.
func (n *Network) waitForAddresses() error {
	for _, a := range addresses {
		addr := netip.MustParsePrefix(a.prefix).Addr()
		if addr.Is4() {
			continue
		}
		if err := testbed.WaitUsable(n.Pod, a.device, addr); err != nil {
			return err
		}
	}
	return nil
}

// routeLocalMark adds a rule and a route that deliver packets with [LocalMark] to the pod itself.
func (n *Network) routeLocalMark(h *netlink.Handle, family int) error {
	const table, priority = 133, 133
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table, rule.Priority = family, LocalMark, table, priority
	if err := h.RuleAdd(rule); err != nil {
		return fmt.Errorf("add the rule for mark 0x%x: %w", LocalMark, err)
	}
	all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if family == unix.AF_INET6 {
		all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	route := &netlink.Route{
		Dst: all, LinkIndex: n.devices["lo"].index, Table: table, Type: unix.RTN_LOCAL,
		Scope: netlink.SCOPE_HOST,
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("add the route for mark 0x%x: %w", LocalMark, err)
	}
	return nil
}

// readAddresses stores the addresses of each interface, in the kernel's order.
func (n *Network) readAddresses(h *netlink.Handle) error {
	for name, d := range n.devices {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		list, err := h.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, a := range list {
			addr, _ := netip.AddrFromSlice(a.IP)
			addr = addr.Unmap()
			d.addrs = append(d.addrs, addr)
		}
	}
	return nil
}
