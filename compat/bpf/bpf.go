package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Program is a program at a hook.
type Program struct {
	Hook Hook
	// At is the object with the hook: "cgroup /kubepods/pod1", "interface eth0" or "the namespace".
	At string
	// ID is the number of the program in the kernel.
	ID uint32
	// Name is the name of the program, empty if it has none or is not readable.
	Name string
	// UID is the user who loaded the program; nil if it is not readable.
	UID *uint32
	// Processes are processes that have the program open, as NAME[PID]. An attached program needs
	// none.
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

	SkLookup Hook = "sk_lookup"

	XDP           Hook = "xdp"
	TCIngress     Hook = "tc_ingress"
	TCEgress      Hook = "tc_egress"
	TCXIngress    Hook = "tcx_ingress"
	TCXEgress     Hook = "tcx_egress"
	NetkitPrimary Hook = "netkit_primary"
	NetkitPeer    Hook = "netkit_peer"
)

// A Listing has the programs of a namespace.
type Listing struct {
	Programs []Program
	// Unread lists what could not be read, one sentence each.
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

func (l *Listing) addUnread(subject string, err error) {
	l.Unread = append(l.Unread, fmt.Sprintf("%s: %v", subject, err))
}

// An attachment is a hook with the kernel's attach type.
type attachment struct {
	hook   Hook
	attach uint32
}

// query adds the programs at the attachments of a target, a file descriptor or the index of an
// interface. Attach types that the kernel lacks have none.
func (l *Listing) query(target int, place string, attachments []attachment) {
	for _, a := range attachments {
		ids, err := queryPrograms(target, a.attach)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT),
			errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOSYS):
		case errors.Is(err, unix.EPERM):
			l.Unread = append(l.Unread, "eBPF programs: CAP_NET_ADMIN in the first user namespace is missing")
		case err != nil:
			l.addUnread("programs of "+place, err)
		default:
			for _, id := range ids {
				l.add(a.hook, place, id)
			}
		}
	}
}

func (l *Listing) add(hook Hook, place string, id uint32) {
	l.Programs = append(l.Programs, Program{Hook: hook, At: place, ID: id})
}

// readDetails reads the names and users of the programs, and the processes that have them open.
func (l *Listing) readDetails(proc string) {
	if len(l.Programs) == 0 {
		return
	}
	holders := holdersOf(proc)
	for i := range l.Programs {
		p := &l.Programs[i]
		p.Processes = holders[p.ID]
		if err := p.describe(); err != nil {
			l.addUnread(fmt.Sprintf("program %d", p.ID), err)
		}
	}
}

func (p *Program) describe() error {
	info, maps, err := readProgram(p.ID)
	if err != nil {
		return err
	}
	p.Name, p.UID = text(info.name), &info.uid
	for _, id := range maps {
		m, err := readMap(id)
		if err == nil && (m.kind == unix.BPF_MAP_TYPE_SOCKMAP ||
			m.kind == unix.BPF_MAP_TYPE_SOCKHASH) {
			p.SocketMap = cmp.Or(text(m.name), fmt.Sprintf("map %d", id))
		}
	}
	return nil
}
