package livetrace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/rules"
)

// A Namespace provides facts about a network namespace that trace events lack. It must be used by
// one goroutine at a time.
type Namespace struct {
	ns     *netns.NS
	handle *netlink.Handle
	id     netns.ID
	proc   string
	// maps translates the user and group IDs in messages of the kernel and in /proc to the IDs that
	// rules compare.
	maps owner.Maps
}

// OpenNamespace opens the namespace (nil: the current one). proc is a /proc directory that contains
// the processes of the namespace. ns must stay open until the Namespace is closed.
func OpenNamespace(ns *netns.NS, proc string) (*Namespace, error) {
	handle, err := ns.Netlink(unix.NETLINK_ROUTE)
	return &Namespace{
		ns: ns, handle: handle, id: ns.ID(), proc: proc, maps: owner.MapsOf(ns, proc),
	}, err
}

// Close closes the netlink socket.
func (n *Namespace) Close() { n.handle.Close() }

// Interfaces returns the names of the interfaces by index. If interfaces change during each of
// several attempts to list them, some may be missing.
func (n *Namespace) Interfaces() (map[uint32]string, error) {
	return interfaceNames(n.handle.LinkList)
}

// interfaceNames returns the names of the interfaces that list returns, by index.
func interfaceNames(list func() ([]netlink.Link, error)) (map[uint32]string, error) {
	links, err := dump.Retry(dump.Attempts, list)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[uint32]string{}
	for _, l := range links {
		names[uint32(l.Attrs().Index)] = l.Attrs().Name
	}
	return names, nil
}

// A Process is the sender of a packet. PID is 0 if the process is unknown.
type Process struct {
	// Owner contains IDs of the user namespace that owns the network namespace, like the owners in
	// rules.
	Owner rules.Owner
	// GroupUnknown is set if the group is unknown. Owner.GID is then a guess: Owner.UID.
	GroupUnknown bool
	PID          int
	Name         string
	// Container is the ID of the container of the process, or "".
	Container string
}

// Processes returns the processes that opened the connections. It omits connections whose socket is
// closed or unknown. If no visible process has the socket open, or the context is done before the
// process is found, PID is 0 and the group is unknown. Processes reads the sockets and the
// processes once for all connections. It returns no processes if another user namespace owns the
// network namespace and /proc has no process of that user namespace, because the owners are then
// unknown.
func (n *Namespace) Processes(
	ctx context.Context, connections []Connection,
) map[Connection]Process {
	if n.maps.Err() != nil {
		return nil
	}
	senders := map[Connection]sockdiag.Socket{}
	for _, protocol := range []rules.Protocol{rules.TCP, rules.UDP} {
		wanted := map[uint16][]Connection{} // by source port
		for _, c := range connections {
			if c.Protocol == protocol {
				wanted[c.Source.Port()] = append(wanted[c.Source.Port()], c)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		n.forEachSocket(protocol, func(s sockdiag.Socket) bool {
			for _, c := range wanted[s.Local.Port()] {
				if _, found := senders[c]; !found && isSender(s, c) {
					senders[c] = s
				}
			}
			return true
		})
	}
	inodes := map[uint32]bool{}
	for _, s := range senders {
		inodes[s.INode] = true
	}
	openedBy := n.processesWithSockets(ctx, inodes)
	processes := make(map[Connection]Process, len(senders))
	for c, s := range senders {
		p := openedBy[s.INode]
		p.Owner.UID = s.UID
		if p.PID == 0 || p.GroupUnknown {
			p.Owner.GID, p.GroupUnknown = s.UID, true
		}
		p.Owner, _ = n.TranslateOwner(p.Owner)
		processes[c] = p
	}
	return processes
}

// TranslateOwner translates the owner of a trace event, which has IDs of the user namespace of this
// process, to IDs of the user namespace that owns the network namespace. It returns false if the
// translation is unknown.
func (n *Namespace) TranslateOwner(o rules.Owner) (rules.Owner, bool) {
	inside, err := n.maps.Inside(o)
	return inside, err == nil
}

// isSender reports whether the socket may have sent packets of the connection. The caller has
// compared the source port. A socket that no process can use any more, such as one in the state
// TIME_WAIT, has the inode 0. The kernel reports the user 0 as the owner of every such socket.
func isSender(s sockdiag.Socket, c Connection) bool {
	if s.INode == 0 {
		return false
	}
	return (s.Local.Addr() == c.Source.Addr() || s.Local.Addr().IsUnspecified()) &&
		(s.Peer == c.Destination || s.Peer.Port() == 0 && c.Protocol == rules.UDP)
}

// forEachSocket calls visit for the TCP or UDP sockets of the namespace, first of IPv4, then of
// IPv6, until visit returns false. Some sockets may be missing.
func (n *Namespace) forEachSocket(
	protocol rules.Protocol, visit func(sockdiag.Socket) (more bool),
) {
	_ = n.ns.Do(func() error { // an incomplete list is useful too
		for s, err := range sockdiag.List(protocol, sockdiag.AnyState) {
			if err != nil || !visit(s) {
				return err
			}
		}
		return nil
	})
}

// Listener returns the local address of a socket that receives new connections (TCP) or datagrams
// (UDP) on the port, or false if there is none.
func (n *Namespace) Listener(
	protocol rules.Protocol, port uint16,
) (local netip.AddrPort, found bool) {
	n.forEachSocket(protocol, func(s sockdiag.Socket) bool {
		isReceiver := s.Peer.Port() == 0
		if protocol == rules.TCP {
			isReceiver = s.State == sockdiag.Listen
		}
		if found = isReceiver && s.Local.Port() == port; found {
			local = s.Local
		}
		return !found
	})
	return local, found
}

// containerIDPattern matches the container ID in the path of a cgroup. The rest of the path depends
// on the container runtime. The pattern is compiled when needed, not at program start.
const containerIDPattern = `\b[0-9a-f]{64}\b`

// processesWithSockets returns, by inode of the socket, the first visible process that has the
// socket open. It does not set the UID of the owner. The search ends when the context is done.
func (n *Namespace) processesWithSockets(
	ctx context.Context, inodes map[uint32]bool,
) map[uint32]Process {
	if len(inodes) == 0 {
		return nil // do not list the processes of the node
	}
	found := map[uint32]Process{}
	for _, dir := range n.processDirs() {
		if len(found) == len(inodes) || ctx.Err() != nil {
			break
		}
		var process *Process
		for inode := range openSockets(ctx, dir) {
			if _, known := found[inode]; known || !inodes[inode] {
				continue
			}
			if process == nil {
				p := readProcess(dir)
				process = &p
			}
			found[inode] = *process
		}
	}
	return found
}

// readProcess reads the facts about the process with the /proc directory dir, except its UID. Facts
// that cannot be read stay zero, and the group is then unknown.
func readProcess(dir string) Process {
	p := Process{GroupUnknown: true}
	p.PID, _ = strconv.Atoi(filepath.Base(dir))
	if cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
		p.Container = regexp.MustCompile(containerIDPattern).FindString(string(cgroup))
	}
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(status)) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "Name:":
			p.Name = words[1]
		case len(words) > 4 && words[0] == "Gid:":
			if gid, err := strconv.ParseUint(words[4], 10, 32); err == nil {
				p.Owner.GID, p.GroupUnknown = uint32(gid), false
			}
		}
	}
	return p
}

// processDirs returns the directories of the visible processes, with the processes in the namespace
// first. These processes must be searched first, because a process that sends one request may end
// before the descriptors of all processes of a node are read.
func (n *Namespace) processDirs() []string {
	var inside, outside []string
	for _, dir := range owner.Processes(n.proc) {
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

// openSockets iterates over the inodes of the sockets that the process with the /proc directory dir
// has open, until the context is done.
func openSockets(ctx context.Context, dir string) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for file := range owner.Descriptors(dir) {
			if ctx.Err() != nil {
				return
			}
			link, _ := os.Readlink(file)
			number, isSocket := strings.CutPrefix(link, "socket:[")
			if !isSocket {
				continue
			}
			inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32)
			if err == nil && !yield(uint32(inode)) {
				return
			}
		}
	}
}
