package compat_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestCapabilitiesOfAnInitContainerSuffice runs with the privileges of istio-init: uid 0 in the
// pod's namespace with two capabilities, which do not allow entering or creating other namespaces.
func TestCapabilitiesOfAnInitContainerSuffice(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	var p *process
	err := ns.Do(func() error {
		p = start(t, nil, "give up capabilities")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"legacy: created", "legacy: unchanged", "auto: replaced by nft", "probe: not permitted",
		"legacy: replaced",
	} {
		if got := p.line(t); got != want {
			t.Errorf("the process prints %q, want %q", got, want)
		}
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the process failed: %v\n%s", err, p.stderr.String())
	}
	wantInSync(t, chosen(t, compat.BackendLegacy), ns, compiled(t, tproxy, dual))
}

// giveUpCapabilities executes this program in the role "apply as a container", with two
// capabilities. A process of uid 0 has the capabilities of its bounding set after it executes a
// program.
func giveUpCapabilities(*netns.NS, *bufio.Reader) error {
	runtime.LockOSThread()
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if slices.Contains([]uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil &&
			!errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(roleVariable, "apply as a container"); err != nil {
		return err
	}
	return syscall.Exec(exe, []string{exe}, os.Environ())
}

// applyAsContainer applies a ruleset with several backends, and prints the results.
func applyAsContainer(*netns.NS, *bufio.Reader) error {
	rs := rules.MustCompile(sidecar(tproxy, dual))
	apply := func(backendName compat.BackendName) (compat.Result, error) {
		b, err := compat.Choose(backendName)
		if err != nil {
			return compat.Result{}, err
		}
		return b.Apply(nil, rs, compat.Snapshot{})
	}
	for range 2 {
		r, err := apply(compat.BackendLegacy)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", string(r.Backend), r.Outcome)
	}
	r, err := apply(compat.BackendAuto)
	if err != nil {
		return err
	}
	fmt.Printf("auto: %s by %s\n", r.Outcome, r.Backend)
	if _, err := compat.ProbeLegacy(rs); compat.IsNotPermitted(err) {
		fmt.Println("probe: not permitted")
	} else {
		fmt.Printf("probe: %v\n", err)
	}
	if r, err = apply(compat.BackendLegacy); err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", string(r.Backend), r.Outcome)
	return nil
}

// TestApplyInAnotherUserNamespace programs the namespace of a pod with hostUsers: false from
// the host.
func TestApplyInAnotherUserNamespace(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.NewInUserNS(t)
			b := chosen(t, backendName)
			applyAndCheck(t, b, ns, compiled(t, dual, allDNS), nft.Created)
			applyAndCheck(t, b, ns, compiled(t, tproxy, dual), nft.Replaced)
			applyAndCheck(t, b, ns, compiled(t, tproxy, dual), nft.Unchanged)
			if removed, err := b.Remove(ns); err != nil || !removed {
				t.Errorf("Remove: %t, error %v; want true", removed, err)
			}
			wantNoRules(t, ns)
		})
	}
}

// TestApplyReportsAUserNamespaceThatCannotBeEntered verifies that the error names the system call
// that is not permitted.
func TestApplyReportsAUserNamespaceThatCannotBeEntered(t *testing.T) {
	t.Parallel()
	ns := netnstest.NewInUserNS(t)
	p := start(t, ns, "apply without entering")
	got := p.line(t)
	for _, want := range []string{
		"iptables-legacy ip nat: replace: enter the user namespace that owns the network namespace",
		"setns: operation not permitted", "not permitted: true",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the process prints %q, want %q in it", got, want)
		}
	}
	wantNoRules(t, ns)
}

// applyWithoutEntering is the role of a process that cannot enter other user namespaces.
func applyWithoutEntering(ns *netns.NS, _ *bufio.Reader) error {
	refuse(unix.SYS_SETNS, -1, 1, unix.CLONE_NEWUSER, unix.EPERM)
	_, err := compat.Backends()[1].Apply(ns, rules.MustCompile(sidecar(dual)), compat.Snapshot{})
	fmt.Printf("%v; not permitted: %v\n", err, compat.IsNotPermitted(err))
	return nil
}

// TestAutoSelectsLegacyIfNFTIsMissing runs on a kernel without nfnetlink, which a seccomp filter
// simulates.
func TestAutoSelectsLegacyIfNFTIsMissing(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	p := start(t, ns, "apply without nft")
	for _, want := range []string{
		"plan: created by iptables-legacy", "apply: created by iptables-legacy",
		"check: 0 differences by iptables-legacy",
		"nft: not supported", "remove: true",
	} {
		if got := p.line(t); got != want {
			t.Errorf("the process prints %q, want %q", got, want)
		}
	}
	neither := p.line(t)
	for _, want := range []string{
		"cannot use nftables: ", "CONFIG_NETFILTER_NETLINK",
		"cannot use iptables-legacy: ", "iptables-legacy's tables of ip ",
		"CONFIG_IP_NF_IPTABLES, module ip_tables", "CAP_SYS_MODULE", "load the modules",
	} {
		if !strings.Contains(neither, want) {
			t.Errorf("the process prints the error %q, want %q in it", neither, want)
		}
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the process failed: %v\n%s", err, p.stderr.String())
	}
	wantNoRules(t, ns)
}

// applyWithoutNFT is the role of a process for which the kernel has no nfnetlink and, at the end,
// no iptables-legacy either.
func applyWithoutNFT(ns *netns.NS, _ *bufio.Reader) error {
	rs := rules.MustCompile(sidecar(tproxy, dual))
	auto, err := compat.Choose(compat.BackendAuto)
	if err != nil {
		return err
	}
	refuse(unix.SYS_SOCKET, unix.AF_NETLINK, 2, unix.NETLINK_NETFILTER, unix.EPROTONOSUPPORT)
	plan, err := auto.Plan(ns, rs, compat.Snapshot{})
	if err != nil {
		return err
	}
	fmt.Printf("plan: %s by %s\n", plan.Outcome, plan.Backend)
	result, err := auto.Apply(ns, rs, compat.Snapshot{})
	if err != nil {
		return err
	}
	fmt.Printf("apply: %s by %s\n", result.Outcome, result.Backend)
	found, err := auto.Check(ns, rs, compat.Snapshot{})
	if err != nil {
		return err
	}
	fmt.Printf("check: %d differences by %s\n", len(found.Differences), found.Backend)
	if _, err := compat.Backends()[0].Apply(ns, rs, compat.Snapshot{}); compat.IsNotSupported(err) {
		fmt.Println("nft: not supported")
	}
	removed, err := auto.Remove(ns)
	if err != nil {
		return err
	}
	fmt.Println("remove:", removed)
	// IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES have the same numbers as the options that write.
	refuse(unix.SYS_GETSOCKOPT, -1, 2, 64, unix.ENOPROTOOPT)
	refuse(unix.SYS_GETSOCKOPT, -1, 2, 65, unix.ENOPROTOOPT)
	_, err = auto.Apply(ns, rs, compat.Snapshot{})
	if err == nil || !compat.IsNotSupported(err) {
		return fmt.Errorf("error %w, want an error about an unsupported kernel", err)
	}
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", "; "))
	return nil
}

// refuse makes a system call of this process fail with errno if the argument at the index equals
// value and, unless first is negative, the first argument equals first.
func refuse(call uint32, first int, index, value uint32, errno unix.Errno) {
	const (
		number     = 0 // offsets in struct seccomp_data
		args       = 16
		load       = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result     = unix.BPF_RET | unix.BPF_K
		setFilter  = 1 // SECCOMP_SET_MODE_FILTER
		allThreads = 1 // SECCOMP_FILTER_FLAG_TSYNC
	)
	filter := []unix.SockFilter{{Code: load, K: number}, {Code: jumpEqual, Jf: 5, K: call}}
	if first >= 0 {
		filter = append(filter, unix.SockFilter{
			Code: load, K: args,
		}, unix.SockFilter{Code: jumpEqual, Jf: 3, K: uint32(first)})
	} else {
		filter[1].Jf = 3
	}
	filter = append(filter,
		unix.SockFilter{Code: load, K: args + 8*index},
		unix.SockFilter{Code: jumpEqual, Jf: 1, K: value},
		unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThreads,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		panic(os.NewSyscallError("seccomp", failed))
	}
}
