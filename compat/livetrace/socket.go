package livetrace

import (
	"fmt"
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

// A Namespace provides facts that trace events lack. It must be used by one goroutine at a time.
type Namespace struct {
	handle *netlink.Handle
	id     netns.ID
	proc   string
}

// OpenNamespace opens the namespace (nil: the current one). proc is the /proc that contains its
// processes.
func OpenNamespace(ns *netns.NS, proc string) (*Namespace, error) {
	n := &Namespace{id: ns.ID(), proc: proc}
	err := ns.Do(func() (err error) {
		n.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_INET_DIAG)
		return err
	})
	return n, err
}

// Close closes it.
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
	// Container is the id of its container, or "".
	Container string
}

// Process returns the sender of the packet, or false if its socket is closed or unknown. The group
// is the group of the process, or equal to the user if no visible process has the socket.
func (n *Namespace) Process(
	protocol rules.Protocol, source, destination netip.AddrPort,
) (Process, bool) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list := n.handle.SocketDiagTCP
		switch protocol {
		case rules.TCP:
		case rules.UDP:
			list = n.handle.SocketDiagUDP
		default:
			return Process{}, false
		}
		sockets, _ := list(family) // an incomplete list is of use too
		for _, s := range sockets {
			if s.ID.SourcePort == source.Port() && (s.ID.DestinationPort == destination.Port() ||
				s.ID.DestinationPort == 0 && protocol == rules.UDP) {
				local, _ := netip.AddrFromSlice(s.ID.Source)
				if local = local.Unmap(); local == source.Addr() || local.IsUnspecified() {
					return n.processOf(s), true
				}
			}
		}
	}
	return Process{}, false
}

// containerID matches the id that runtimes write into the name of the control group.
const containerID = `\b[0-9a-f]{64}\b`

// Listener returns the local address of a socket that receives new connections or datagrams on the
// port, or false if there is none.
func (n *Namespace) Listener(protocol rules.Protocol, port uint16) (netip.AddrPort, bool) {
	const listen = 10 // TCP_LISTEN, net/tcp_states.h
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list := n.handle.SocketDiagTCP
		if protocol != rules.TCP {
			list = n.handle.SocketDiagUDP
		}
		sockets, _ := list(family) // an incomplete list is of use too
		for _, s := range sockets {
			isReceiver := s.ID.DestinationPort == 0
			if protocol == rules.TCP {
				isReceiver = s.State == listen
			}
			if isReceiver && s.ID.SourcePort == port {
				local, _ := netip.AddrFromSlice(s.ID.Source)
				return netip.AddrPortFrom(local.Unmap(), port), true
			}
		}
	}
	return netip.AddrPort{}, false
}

// processOf returns a process that has the socket.
func (n *Namespace) processOf(s *netlink.Socket) Process {
	p := Process{Owner: rules.Owner{UID: s.UID, GID: s.UID}}
	want := fmt.Sprintf("socket:[%d]", s.INode)
	for _, dir := range n.processes() {
		if !hasOpen(dir, want) {
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

// processes returns the directories of the visible processes in the order in which they are
// searched: those in the namespace first, because a process that sends one request may end before
// the descriptors of all processes of a node are read.
func (n *Namespace) processes() []string {
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

// hasOpen reports whether the process has a file open that is described by the link.
func hasOpen(dir, link string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "fd/*"))
	return slices.ContainsFunc(files, func(file string) bool {
		target, err := os.Readlink(file)
		return err == nil && target == link
	})
}
