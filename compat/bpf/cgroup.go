package bpf

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/owner"
)

// cgroupAttachPoints contains the hooks of a cgroup whose programs see connections or packets.
var cgroupAttachPoints = []attachPoint{
	{Connect4, unix.BPF_CGROUP_INET4_CONNECT},
	{Connect6, unix.BPF_CGROUP_INET6_CONNECT},
	{SendMsg4, unix.BPF_CGROUP_UDP4_SENDMSG},
	{SendMsg6, unix.BPF_CGROUP_UDP6_SENDMSG},
	{SockOps, unix.BPF_CGROUP_SOCK_OPS},
	{Ingress, unix.BPF_CGROUP_INET_INGRESS},
	{Egress, unix.BPF_CGROUP_INET_EGRESS},
	{SockCreate, unix.BPF_CGROUP_INET_SOCK_CREATE},
	{Bind4, unix.BPF_CGROUP_INET4_BIND},
	{Bind6, unix.BPF_CGROUP_INET6_BIND},
	{GetSockOpt, unix.BPF_CGROUP_GETSOCKOPT},
	{SetSockOpt, unix.BPF_CGROUP_SETSOCKOPT},
}

// addCgroups adds the programs that are attached to the cgroups of the processes in the namespace,
// and to the ancestors of these cgroups.
func (l *Listing) addCgroups(ns *netns.NS, proc string) {
	paths := cgroupsOf(ns.ID(), proc)
	if len(paths) == 0 {
		l.Unread = append(l.Unread, "cgroups: no process of the namespace is visible in "+proc)
		return
	}
	mount, err := cgroupMount()
	if err != nil {
		l.addUnread("cgroups", err)
		return
	}
	for _, path := range withAncestors(paths) {
		if strings.HasPrefix(path, "/..") {
			l.Unread = append(l.Unread,
				"cgroup "+path+": it is outside the cgroup namespace of this process")
			continue
		}
		fd, err := unix.Open(filepath.Join(mount, path),
			unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			l.addUnread("cgroup "+path, err)
			continue
		}
		l.addAttached(fd, "cgroup "+path, cgroupAttachPoints)
		_ = unix.Close(fd)
	}
}

// withAncestors returns the paths and the paths of all ancestors, sorted.
func withAncestors(paths []string) []string {
	found := map[string]bool{}
	for _, path := range paths {
		for ; !found[path]; path = filepath.Dir(path) {
			found[path] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// cgroupsOf returns the paths of the cgroups (version 2) of the processes in the namespace that are
// visible in proc.
func cgroupsOf(id netns.ID, proc string) []string {
	found := map[string]bool{}
	for _, dir := range owner.Processes(proc) {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, "ns/net"), &st) != nil ||
			(netns.ID{Dev: st.Dev, Ino: st.Ino}) != id {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		for line := range strings.Lines(string(text)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				found[path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// cgroupMount returns the mount point of the root of the cgroup hierarchy (version 2).
func cgroupMount() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		head, tail, _ := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if strings.HasPrefix(tail, "cgroup2 ") && len(fields) >= 5 && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", errors.New("the root of the cgroup2 hierarchy is not mounted")
}

// processesOfPrograms returns the processes that have programs open, as NAME[PID], by program ID.
func processesOfPrograms(proc string) map[uint32][]string {
	processes := map[uint32][]string{}
	for _, dir := range owner.Processes(proc) {
		for file := range owner.Descriptors(dir) {
			if target, err := os.Readlink(file); err != nil || target != "anon_inode:bpf-prog" {
				continue
			}
			id, ok := programID(filepath.Join(dir, "fdinfo", filepath.Base(file)))
			if !ok {
				continue
			}
			if name := owner.ProcessName(dir); !slices.Contains(processes[id], name) {
				processes[id] = append(processes[id], name)
			}
		}
	}
	return processes
}

// programID reads the ID of a program from the fdinfo file of its file descriptor.
func programID(file string) (uint32, bool) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "prog_id:"); ok {
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			return uint32(id), err == nil
		}
	}
	return 0, false
}
