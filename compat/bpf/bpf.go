package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Program is an eBPF program that is attached to a hook.
type Program struct {
	Hook Hook
	// At is the object that has the hook: "cgroup /kubepods/pod1", "interface eth0" or "the
	// namespace".
	At string
	// ID is the kernel's ID of the program.
	ID uint32
	// Name is the name of the program, or empty if it has no name or its name cannot be read.
	Name string
	// UID is the user ID of the process that loaded the program, or nil if it cannot be read.
	UID *uint32
	// Processes contains the processes that have the program open, as NAME[PID]. It may be empty,
	// because a program stays attached even if no process has it open.
	Processes []string
	// SocketMap is the name of a sockmap or sockhash that the program uses, or empty.
	SocketMap string
}

// Hook is a hook of programs, by its name in bpftool.
type Hook string

// The hooks.
const (
	Connect4 Hook = "cgroup_inet4_connect"
	Connect6 Hook = "cgroup_inet6_connect"
	SendMsg4 Hook = "cgroup_udp4_sendmsg"
	SendMsg6 Hook = "cgroup_udp6_sendmsg"
	SockOps  Hook = "cgroup_sock_ops"
	Ingress  Hook = "cgroup_inet_ingress"
	Egress   Hook = "cgroup_inet_egress"

	SockCreate Hook = "cgroup_inet_sock_create"
	Bind4      Hook = "cgroup_inet4_bind"
	Bind6      Hook = "cgroup_inet6_bind"
	GetSockOpt Hook = "cgroup_getsockopt"
	SetSockOpt Hook = "cgroup_setsockopt"

	SkLookup Hook = "sk_lookup"

	XDP           Hook = "xdp"
	TCIngress     Hook = "tc_ingress"
	TCEgress      Hook = "tc_egress"
	TCXIngress    Hook = "tcx_ingress"
	TCXEgress     Hook = "tcx_egress"
	NetkitPrimary Hook = "netkit_primary"
	NetkitPeer    Hook = "netkit_peer"
)

// A Filter is a filter of tc that is not an eBPF program. Like a program, it can drop, change or
// redirect packets.
type Filter struct {
	Hook      Hook // TCIngress or TCEgress
	Interface string
	Parent    string // the argument "parent" of the command tc, such as 1:0
	Kind      string // the kind of the filter in tc, such as u32 or flower
}

// A Listing contains the programs of a namespace and the other filters of tc. Filters of the same
// kind at the same parent are listed once.
type Listing struct {
	Programs []Program
	Filters  []Filter
	// Unread contains a message for each object that could not be read.
	Unread []string
}

// List returns the programs that see the traffic of the namespace (nil: the current one) and of the
// processes in it. proc is a /proc directory that contains these processes.
func List(ns *netns.NS, proc string) Listing {
	var l Listing
	l.addCgroups(ns, proc)
	err := ns.Do(func() error {
		l.addNamespace()
		l.addInterfaces()
		return nil
	})
	if err != nil {
		l.addUnread("interfaces", err)
	}
	l.readDetails(proc)
	slices.Sort(l.Unread)
	l.Unread = slices.Compact(l.Unread)
	return l
}

// addUnread adds a message about an object that could not be read.
func (l *Listing) addUnread(subject string, err error) {
	l.Unread = append(l.Unread, fmt.Sprintf("%s: %v", subject, err))
}

// An attachPoint is a hook with its attach type in the kernel (enum bpf_attach_type).
type attachPoint struct {
	hook       Hook
	attachType uint32
}

// addAttached adds the programs at the attach points of a target, which is a file descriptor or the
// index of an interface. object describes the target. An attach type that the kernel does not
// support has no programs.
func (l *Listing) addAttached(target int, object string, points []attachPoint) {
	for _, p := range points {
		ids, err := queryPrograms(target, p.attachType)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT),
			errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOSYS):
		case errors.Is(err, unix.EPERM):
			l.Unread = append(l.Unread,
				"eBPF programs: CAP_NET_ADMIN in the initial user namespace is missing")
		case err != nil:
			l.addUnread("programs of "+object, err)
		default:
			for _, id := range ids {
				l.addProgram(p.hook, object, id)
			}
		}
	}
}

func (l *Listing) addProgram(hook Hook, object string, id uint32) {
	l.Programs = append(l.Programs, Program{Hook: hook, At: object, ID: id})
}

// readDetails reads the names and users of the programs, and the processes that have them open.
func (l *Listing) readDetails(proc string) {
	if len(l.Programs) == 0 {
		return
	}
	processes := processesOfPrograms(proc)
	for i := range l.Programs {
		p := &l.Programs[i]
		p.Processes = processes[p.ID]
		if err := p.readInfo(); err != nil {
			l.addUnread(fmt.Sprintf("program %d", p.ID), err)
		}
	}
}

// readInfo reads the name, the user and the socket map of the program.
func (p *Program) readInfo() error {
	info, maps, err := readProgram(p.ID)
	if err != nil {
		return err
	}
	p.Name, p.UID = unix.ByteSliceToString(info.name[:]), &info.uid
	for _, id := range maps {
		m, err := readMap(id)
		if err == nil && (m.kind == unix.BPF_MAP_TYPE_SOCKMAP ||
			m.kind == unix.BPF_MAP_TYPE_SOCKHASH) {
			p.SocketMap = cmp.Or(unix.ByteSliceToString(m.name[:]), fmt.Sprintf("map %d", id))
		}
	}
	return nil
}
