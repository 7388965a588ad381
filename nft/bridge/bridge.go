// Package bridge reads the ports of bridges whose packets traverse the hooks of IPv4 and IPv6
// inside the bridge.
//
// If the module br_netfilter is loaded and a sysctl or an option of the bridge enables it, a packet
// that arrives at a port of the bridge traverses the hook prerouting of IP inside the bridge, and
// not again after it (ip_sabotage_in in net/bridge/br_netfilter_hooks.c). If the bridge then passes
// the packet to its own interface, the kernel removes the socket that tproxy has assigned
// (skb_orphan in ip_rcv_core in net/ipv4/ip_input.c). A translation of addresses has its usual
// effect.
package bridge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Port is an interface that is a port of a bridge. IPv4 and IPv6 report whether the packets of
// the family traverse the hooks of IP inside the bridge.
type Port struct {
	Name, Bridge string
	IPv4, IPv6   bool
}

// String describes the port.
func (p Port) String() string { return fmt.Sprintf("port %s of the bridge %s", p.Name, p.Bridge) }

// Filters reports whether packets of the family, which is IPv4 or IPv6, traverse the hooks of IP
// inside the bridge.
func (p Port) Filters(f rules.Family) bool {
	if f == rules.IPv6 {
		return p.IPv6
	}
	return p.IPv4
}

// The sysctls that make packets of a family traverse the hooks of IP inside all bridges of a
// namespace. Each bridge also has an option for each family.
const (
	SysctlIPv4 = "net.bridge.bridge-nf-call-iptables"
	SysctlIPv6 = "net.bridge.bridge-nf-call-ip6tables"
)

// maxLinks is the maximum number of interfaces of a namespace. A process of the pod can add any
// number, and could exhaust the memory of the reader. It is a variable for tests.
var maxLinks = 10_000

// FilteredPorts returns the ports of the namespace's bridges whose IPv4 or IPv6 packets traverse
// the hooks of IP inside the bridge, sorted by bridge and name. A namespace with more than 10,000
// interfaces is an error. Before Linux 5.3, the result is empty except in the initial namespace.
func FilteredPorts(ns *netns.NS) (ports []Port, err error) {
	err = ns.Do(func() (err error) {
		ports, err = filteredPorts()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the ports of bridges: %w", err)
	}
	return ports, nil
}

// filteredPorts is FilteredPorts in the namespace of the thread.
func filteredPorts() ([]Port, error) {
	allIPv4, err := readSysctl(SysctlIPv4)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the module br_netfilter is not loaded
	}
	if err != nil {
		return nil, err
	}
	allIPv6, err := readSysctl(SysctlIPv6)
	if err != nil {
		return nil, err
	}
	links, err := dump.Retry(dump.Attempts, listLinks)
	if err != nil {
		return nil, err
	}
	bridges := map[uint32]link{}
	for _, l := range links {
		if l.isBridge {
			bridges[l.index] = l
		}
	}
	var ports []Port
	for _, l := range links {
		bridge, ok := bridges[l.bridge]
		p := Port{l.name, bridge.name, allIPv4 || bridge.ipv4, allIPv6 || bridge.ipv6}
		if ok && (p.IPv4 || p.IPv6) {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), cmp.Compare(a.Name, b.Name))
	})
	return ports, nil
}

// readSysctl reports whether a sysctl of the thread's namespace is not 0.
func readSysctl(name string) (bool, error) {
	value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	return string(bytes.TrimSpace(value)) != "0", err
}

// A link is an interface that is a bridge or a port of a bridge.
type link struct {
	index    uint32
	name     string
	isBridge bool
	// ipv4 and ipv6 report whether the options of the bridge that are equivalent to the sysctls are
	// set.
	ipv4, ipv6 bool
	bridge     uint32 // the index of the port's bridge; 0 if the link is not a port
}

// skipStatistics makes the kernel omit the statistics of interfaces (RTEXT_FILTER_SKIP_STATS in
// linux/rtnetlink.h).
const skipStatistics = 1 << 3

// listLinks returns the bridges and the ports of bridges in the namespace of the thread.
func listLinks() ([]link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK,
		binary.NativeEndian.AppendUint32(nil, skipStatistics)))
	var links []link
	count := 0
	interrupted, err := nlmsg.Request(unix.NETLINK_ROUTE, request.Serialize(),
		func(m nlmsg.Message) error {
			if m.Type != unix.RTM_NEWLINK || len(m.Body) < unix.SizeofIfInfomsg {
				return nil
			}
			if count++; count > maxLinks {
				return fmt.Errorf("the namespace has more than %d interfaces", maxLinks)
			}
			if l := linkOf(m.Body); l.isBridge || l.bridge != 0 {
				links = append(links, l)
			}
			return nil
		})
	if err == nil && interrupted {
		err = netlink.ErrDumpInterrupted
	}
	return links, err
}

// linkOf decodes the body of a message about an interface.
func linkOf(body []byte) link {
	const indexOffset = 4 // of ifi_index in struct ifinfomsg
	attributes := nlmsg.Attributes(body[unix.SizeofIfInfomsg:])
	info := nlmsg.Attributes(attributes.Get(unix.IFLA_LINKINFO))
	l := link{
		index:    binary.NativeEndian.Uint32(body[indexOffset:]),
		name:     attributes.Text(unix.IFLA_IFNAME),
		isBridge: info.HasText(nl.IFLA_INFO_KIND, "bridge"),
	}
	if l.isBridge {
		options := nlmsg.Attributes(info.Get(nl.IFLA_INFO_DATA))
		l.ipv4 = bytes.Equal(options.Get(nl.IFLA_BR_NF_CALL_IPTABLES), []byte{1})
		l.ipv6 = bytes.Equal(options.Get(nl.IFLA_BR_NF_CALL_IP6TABLES), []byte{1})
	}
	if info.HasText(nl.IFLA_INFO_SLAVE_KIND, "bridge") {
		l.bridge, _ = attributes.HostNumber(unix.IFLA_MASTER)
	}
	return l
}
