package livetrace

import (
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Namespace provides facts about a network namespace that trace events lack. It must be used by
// one goroutine at a time.
type Namespace struct {
	handle *netlink.Handle
	id     netns.ID
	proc   string
}

// OpenNamespace opens the namespace (nil: the current one). proc is a /proc directory that contains
// its processes.
func OpenNamespace(ns *netns.NS, proc string) (*Namespace, error) {
	n := &Namespace{id: ns.ID(), proc: proc}
	err := ns.Do(func() (err error) {
		n.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_INET_DIAG)
		return err
	})
	return n, err
}

// Close closes the netlink sockets.
func (n *Namespace) Close() { n.handle.Close() }

// Interfaces returns the names of the interfaces by index.
func (n *Namespace) Interfaces() (map[uint32]string, error) {
	links, err := n.handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[uint32]string{}
	for _, l := range links {
		names[uint32(l.Attrs().Index)] = l.Attrs().Name
	}
	return names, nil
}

// A Process is the sender of a packet. PID is 0 if it is unknown.
type Process struct {
	Owner rules.Owner
	PID   int
	Name  string
	// Container is the ID of the container of the process, or "".
	Container string
}

// Process returns the sender of the packet, or false if its socket is closed or unknown. If no
// visible process has the socket open, PID is 0 and GID equals UID.
func (n *Namespace) Process(
	protocol rules.Protocol, source, destination netip.AddrPort,
) (Process, bool) {
	if protocol != rules.TCP && protocol != rules.UDP {
		return Process{}, false
	}
	for s := range n.sockets(protocol) {
		isPeer := s.ID.DestinationPort == destination.Port() ||
			s.ID.DestinationPort == 0 && protocol == rules.UDP
		local := localAddr(s)
		if isPeer && s.ID.SourcePort == source.Port() &&
			(local == source.Addr() || local.IsUnspecified()) {
			return n.processOf(s), true
		}
	}
	return Process{}, false
}

// sockets iterates over the TCP or UDP sockets of the namespace, first of IPv4, then of IPv6. Some
// sockets may be missing.
func (n *Namespace) sockets(protocol rules.Protocol) iter.Seq[*netlink.Socket] {
	list := n.handle.SocketDiagTCP
	if protocol != rules.TCP {
		list = n.handle.SocketDiagUDP
	}
	return func(yield func(*netlink.Socket) bool) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			sockets, _ := list(family) // an incomplete list is useful too
			for _, s := range sockets {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// localAddr returns the local address of the socket.
func localAddr(s *netlink.Socket) netip.Addr {
	local, _ := netip.AddrFromSlice(s.ID.Source)
	return local.Unmap()
}

// Listener returns the local address of a socket that receives new connections (TCP) or datagrams
// (UDP) on the port, or false if there is none.
func (n *Namespace) Listener(protocol rules.Protocol, port uint16) (netip.AddrPort, bool) {
	const listen = 10 // TCP_LISTEN, net/tcp_states.h
	for s := range n.sockets(protocol) {
		isReceiver := s.ID.DestinationPort == 0
		if protocol == rules.TCP {
			isReceiver = s.State == listen
		}
		if isReceiver && s.ID.SourcePort == port {
			return netip.AddrPortFrom(localAddr(s), port), true
		}
	}
	return netip.AddrPort{}, false
}

// containerID matches the container ID in the name of a cgroup, which the runtime chooses. It is
// compiled when needed, not at program start.
const containerID = `\b[0-9a-f]{64}\b`

// processOf returns the first visible process that has the socket open.
func (n *Namespace) processOf(s *netlink.Socket) Process {
	p := Process{Owner: rules.Owner{UID: s.UID, GID: s.UID}}
	link := fmt.Sprintf("socket:[%d]", s.INode)
	for _, dir := range n.processDirs() {
		if !hasOpen(dir, link) {
			continue
		}
		p.PID, _ = strconv.Atoi(filepath.Base(dir))
		if cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
			p.Container = regexp.MustCompile(containerID).FindString(string(cgroup))
		}
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		for line := range strings.Lines(string(status)) {
			words := strings.Fields(line)
			switch {
			case len(words) > 1 && words[0] == "Name:":
				p.Name = words[1]
			case len(words) > 4 && words[0] == "Gid:":
				if gid, err := strconv.ParseUint(words[4], 10, 32); err == nil {
					p.Owner.GID = uint32(gid)
				}
			}
		}
		break
	}
	return p
}

// processDirs returns the directories of the visible processes, with the processes in the namespace
// first. They must be searched first, because a process that sends one request may end before the
// descriptors of all processes of a node are read.
func (n *Namespace) processDirs() []string {
	dirs, _ := filepath.Glob(filepath.Join(n.proc, "[0-9]*"))
	var inside, outside []string
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, "ns/net"), &st) == nil &&
			(netns.ID{Dev: st.Dev, Ino: st.Ino}) == n.id {
			inside = append(inside, dir)
		} else {
			outside = append(outside, dir)
		}
	}
	return append(inside, outside...)
}

// hasOpen reports whether the process with the /proc directory dir has a file open to which the
// link refers, such as "socket:[1234]".
func hasOpen(dir, link string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "fd/*"))
	return slices.ContainsFunc(files, func(file string) bool {
		target, err := os.Readlink(file)
		return err == nil && target == link
	})
}
