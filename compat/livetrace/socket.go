package livetrace

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Namespace provides facts that trace events lack. It must be used by one goroutine at a time.
type Namespace struct{ handle *netlink.Handle }

// OpenNamespace opens the namespace (nil: the current one).
func OpenNamespace(ns *netns.NS) (*Namespace, error) {
	n := &Namespace{}
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
					return processOf(s), true
				}
			}
		}
	}
	return Process{}, false
}

// processOf returns a process that has the socket.
func processOf(s *netlink.Socket) Process {
	p := Process{Owner: rules.Owner{UID: s.UID, GID: s.UID}}
	want := fmt.Sprintf("socket:[%d]", s.INode)
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if link, err := os.Readlink(file); err != nil || link != want {
			continue
		}
		dir := filepath.Dir(filepath.Dir(file))
		p.PID, _ = strconv.Atoi(filepath.Base(dir))
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
