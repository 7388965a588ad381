package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/bpf"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// load loads a program that returns a constant.
func load(
	t *testing.T, name string, programType ebpf.ProgramType, attach ebpf.AttachType, result int32,
) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: programType, AttachType: attach, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()},
	})
	if err != nil {
		t.Fatalf("load %s: %v", name, err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// A pod is a namespace with a process in a cgroup.
type pod struct {
	ns     *netns.NS
	mount  string // the mount point of the cgroup hierarchy
	parent string // the parent of the process's cgroup, as a path below mount
}

func newPod(t *testing.T) pod {
	t.Helper()
	netnstest.RequireRoot(t)
	p := pod{ns: netnstest.NewPair(t).Pod, parent: fmt.Sprintf("/sluice-test-%d", os.Getpid())}
	p.mount = t.TempDir()
	if err := unix.Mount("none", p.mount, "cgroup2", 0, ""); err != nil {
		t.Skipf("cannot mount cgroup2: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(p.mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dirs := []string{p.mount + p.parent, p.mount + p.parent + "/pod"}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sleep", "1000")
	if err := p.ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.WriteFile(filepath.Join(dirs[1], "cgroup.procs"),
		[]byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p pod) attachCgroup(t *testing.T, path string, program *ebpf.Program, a ebpf.AttachType) {
	t.Helper()
	l, err := link.AttachCgroup(link.CgroupOptions{
		Path: p.mount + path, Attach: a, Program: program,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// inside calls do in the namespace with its only interface besides lo.
func (p pod) inside(t *testing.T, do func(i netlink.Link) error) {
	t.Helper()
	err := p.ns.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, i := range links {
			if i.Attrs().Name != "lo" {
				return do(i)
			}
		}
		return fmt.Errorf("no interface besides lo among %d", len(links))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// closeAtEnd closes the link when the test ends, if err is nil. It returns err.
func closeAtEnd(t *testing.T, attached link.Link, err error) error {
	if err == nil {
		t.Cleanup(func() { attached.Close() })
	}
	return err
}

func TestListReturnsTheProgramsOfAPod(t *testing.T) {
	p := newPod(t)
	p.attachCgroup(t, p.parent, load(t, "balance", ebpf.CGroupSockAddr,
		ebpf.AttachCGroupInet4Connect, 1), ebpf.AttachCGroupInet4Connect)
	p.attachCgroup(t, p.parent, load(t, "mark", ebpf.CGroupSock,
		ebpf.AttachCGroupInetSockCreate, 1), ebpf.AttachCGroupInetSockCreate)
	p.attachCgroup(t, p.parent, load(t, "bind", ebpf.CGroupSockAddr,
		ebpf.AttachCGroupInet6Bind, 1), ebpf.AttachCGroupInet6Bind)
	p.attachCgroup(t, p.parent, load(t, "read", ebpf.CGroupSockopt,
		ebpf.AttachCGroupGetsockopt, 1), ebpf.AttachCGroupGetsockopt)
	p.attachCgroup(t, p.parent+"/pod", load(t, "send", ebpf.CGroupSockAddr,
		ebpf.AttachCGroupUDP6Sendmsg, 1), ebpf.AttachCGroupUDP6Sendmsg)
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "sockets", Type: ebpf.SockHash, KeySize: 4, ValueSize: 4, MaxEntries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sockets.Close() })
	p.attachCgroup(t, p.parent+"/pod", usingMap(t, sockets), ebpf.AttachCGroupSockOps)
	name := ""
	p.inside(t, func(i netlink.Link) error {
		name = i.Attrs().Name
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer ns.Close()
		l, err := link.AttachNetNs(int(ns.Fd()), load(t, "choose", ebpf.SkLookup,
			ebpf.AttachSkLookup, 1))
		if err := closeAtEnd(t, l, err); err != nil {
			return err
		}
		tcx, err := link.AttachTCX(link.TCXOptions{
			Interface: i.Attrs().Index, Attach: ebpf.AttachTCXIngress,
			Program: load(t, "tcx", ebpf.SchedCLS, ebpf.AttachNone, -1),
		})
		if err := closeAtEnd(t, tcx, err); err != nil {
			return fmt.Errorf("attach to tcx: %w", err)
		}
		xdp, err := link.AttachXDP(link.XDPOptions{
			Interface: i.Attrs().Index, Program: load(t, "xdp", ebpf.XDP, ebpf.AttachNone, 2),
		})
		if err := closeAtEnd(t, xdp, err); err != nil {
			return fmt.Errorf("attach to XDP: %w", err)
		}
		return tc(i, load(t, "classify", ebpf.SchedCLS, ebpf.AttachNone, -1))
	})

	l := bpf.List(p.ns, "/proc")
	if len(l.Unread) > 0 {
		t.Errorf("unread: %q, want none", l.Unread)
	}
	want := map[string]string{
		"balance":  "cgroup_inet4_connect at cgroup " + p.parent,
		"mark":     "cgroup_inet_sock_create at cgroup " + p.parent,
		"bind":     "cgroup_inet6_bind at cgroup " + p.parent,
		"read":     "cgroup_getsockopt at cgroup " + p.parent,
		"send":     "cgroup_udp6_sendmsg at cgroup " + p.parent + "/pod",
		"join":     "cgroup_sock_ops at cgroup " + p.parent + "/pod with sockets",
		"choose":   "sk_lookup at the namespace",
		"tcx":      "tcx_ingress at interface " + name,
		"xdp":      "xdp at interface " + name,
		"classify": "tc_egress at interface " + name,
	}
	for _, program := range l.Programs {
		if strings.HasPrefix(program.At, "cgroup /") &&
			!strings.HasPrefix(program.At, "cgroup "+p.parent) {
			continue // a program of the test machine
		}
		got := fmt.Sprintf("%s at %s", program.Hook, program.At)
		if program.SocketMap != "" {
			got += " with " + program.SocketMap
		}
		if got != want[program.Name] {
			t.Errorf("program %q: %s, want %q", program.Name, got, want[program.Name])
		}
		delete(want, program.Name)
		if program.UID == nil || int(*program.UID) != os.Getuid() {
			t.Errorf("%s: user %v, want %d", program.Name, program.UID, os.Getuid())
		}
		if self := fmt.Sprintf("[%d]", os.Getpid()); !slices.ContainsFunc(program.Processes,
			func(process string) bool { return strings.HasSuffix(process, self) }) {
			t.Errorf("%s: open in %q, want this process %s", program.Name, program.Processes, self)
		}
	}
	if len(want) > 0 {
		t.Errorf("programs that are not listed: %v", want)
	}
}

// usingMap loads a sock_ops program that adds sockets to the map.
func usingMap(t *testing.T, m *ebpf.Map) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "join", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, m.FD()),
			asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, -4),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnSockHashUpdate.Call(),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// tc attaches a program to the egress of the interface with a tc filter.
func tc(i netlink.Link, program *ebpf.Program) error {
	defer runtime.KeepAlive(program)
	qdisc := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: i.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil {
		return fmt.Errorf("add qdisc clsact: %w", err)
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: i.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1,
			Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: program.FD(), Name: "classify", DirectAction: true,
	})
}

// TestOtherFiltersOfTCAreListed covers filters of tc that are not programs, at each kind of qdisc.
func TestOtherFiltersOfTCAreListed(t *testing.T) {
	filter := func(hook bpf.Hook, parent string) bpf.Filter {
		return bpf.Filter{Hook: hook, Interface: "eth0", Parent: parent, Kind: "u32"}
	}
	generic := func(kind string, parent uint32) netlink.Qdisc {
		return &netlink.GenericQdisc{QdiscType: kind, QdiscAttrs: netlink.QdiscAttrs{
			Handle: netlink.MakeHandle(0xffff, 0), Parent: parent,
		}}
	}
	htb := netlink.QdiscAttrs{Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	for name, tc := range map[string]struct {
		qdisc   netlink.Qdisc
		parents []uint32
		want    []bpf.Filter
	}{
		"clsact": {
			generic("clsact", netlink.HANDLE_CLSACT),
			[]uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS},
			[]bpf.Filter{filter(bpf.TCIngress, "ffff:fff2"), filter(bpf.TCEgress, "ffff:fff3")},
		},
		"ingress": {
			generic("ingress", netlink.HANDLE_INGRESS),
			[]uint32{netlink.MakeHandle(0xffff, 0)},
			[]bpf.Filter{filter(bpf.TCIngress, "ffff:fff2")},
		},
		"htb": {
			netlink.NewHtb(htb), []uint32{htb.Handle}, []bpf.Filter{filter(bpf.TCEgress, "1:0")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.NewPair(t).Pod
			err := ns.Do(func() error {
				i, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return addFilters(i.Attrs().Index, tc.qdisc, tc.parents)
			})
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
				t.Skipf("the kernel lacks the qdisc or the filter: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if l := bpf.List(ns, "/proc"); !slices.Equal(l.Filters, tc.want) {
				t.Errorf("got %+v, want the filters %+v", l, tc.want)
			}
		})
	}
}

// TestAQdiscWithoutClassesHasNoFilters checks that such a qdisc is not reported as unread.
func TestAQdiscWithoutClassesHasNoFilters(t *testing.T) {
	netnstest.RequireRoot(t)
	ns := netnstest.NewPair(t).Pod
	err := ns.Do(func() error {
		i, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return addFilters(i.Attrs().Index, &netlink.GenericQdisc{
			QdiscType: "pfifo", QdiscAttrs: netlink.QdiscAttrs{
				Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
			},
		}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, unread := range bpf.List(ns, "/proc").Unread {
		if strings.Contains(unread, "eth0") {
			t.Errorf("unread: %s; want nothing about the interface", unread)
		}
	}
}

// addFilters adds a qdisc to an interface, and a filter to each of the parents.
func addFilters(index int, qdisc netlink.Qdisc, parents []uint32) error {
	qdisc.Attrs().LinkIndex = index
	if err := netlink.QdiscAdd(qdisc); err != nil {
		return fmt.Errorf("qdisc %s: %w", qdisc.Type(), err)
	}
	for _, parent := range parents {
		err := netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: index, Parent: parent, Priority: 1, Protocol: unix.ETH_P_IP,
			},
			ClassId: netlink.MakeHandle(1, 1),
		})
		if err != nil {
			return fmt.Errorf("filter of parent %#x: %w", parent, err)
		}
	}
	return nil
}

func TestNamespaceWithoutProcessesIsReported(t *testing.T) {
	l := bpf.List(netnstest.New(t), "/proc")
	const want = "cgroups: no process of the namespace is visible in /proc"
	if !slices.Contains(l.Unread, want) || len(l.Programs) > 0 {
		t.Errorf("List returned %+v, want no programs and unread %q", l, want)
	}
}
