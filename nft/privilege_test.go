package nft

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestNetAdminAndNetRawAreEnough starts a process like istio-init: with uid 0, in the pod's
// namespace, and with only these two capabilities. The process can neither enter nor create another
// namespace.
func TestNetAdminAndNetRawAreEnough(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	p := startWithCapabilities(t, ns, []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, "apply unprivileged")
	for _, want := range []string{
		"apply: created", "apply: unchanged", "apply: replaced", "apply: updated", "read: equal",
		"probe: not permitted", "unsupported rule: not supported",
	} {
		if got := p.readLine(t); got != want {
			t.Errorf("output %q, want %q", got, want)
		}
	}
	checkRuleset(t, ns, manyPrefixes(1, 5))
	p.writeLine(t, "remove")
	if got, want := p.readLine(t), "removed: true"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	checkEmpty(t, ns)
}

// TestWithoutNetAdminEveryOperationFails checks that each operation returns a permission error, and
// that the errors of Apply name the missing capability.
func TestWithoutNetAdminEveryOperationFails(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	p := startWithCapabilities(t, ns, nil, "apply unprivileged")
	for range 4 {
		if got := p.readLine(t); !strings.HasPrefix(got, "apply: not permitted") ||
			!strings.Contains(got, "CAP_NET_ADMIN") {
			t.Errorf("output %q, want an error that names CAP_NET_ADMIN", got)
		}
	}
	for _, want := range []string{
		"read: not permitted", "probe: not permitted", "unsupported rule: not permitted",
	} {
		if got := p.readLine(t); got != want {
			t.Errorf("output %q, want %q", got, want)
		}
	}
	p.writeLine(t, "remove")
	if got, want := p.readLine(t), "removed: not permitted"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	checkEmpty(t, ns)
}

// applyUnprivileged applies rulesets to its namespace, reads and probes. After the next line of
// input it removes the rules. It prints the result of each operation.
func applyUnprivileged(_ *netns.NS, stdin *bufio.Reader, _ []string) error {
	// report prints the result, or the class of the error.
	report := func(operation string, err error, result any) {
		switch {
		case err == nil:
			fmt.Printf("%s: %v\n", operation, result)
		case IsNotPermitted(err) && operation == "apply":
			fmt.Printf("apply: not permitted: %v\n", err)
		case IsNotPermitted(err):
			fmt.Printf("%s: not permitted\n", operation)
		case IsNotSupported(err):
			fmt.Printf("%s: not supported\n", operation)
		default:
			fmt.Printf("%s: %v\n", operation, err)
		}
	}
	for _, rs := range []rules.Ruleset{
		example("tproxy-dual"), example("tproxy-dual"), manyPrefixes(0, 5), manyPrefixes(1, 5),
	} {
		result, err := Apply(nil, rs)
		report("apply", err, result.Outcome)
	}
	got, err := Read(nil)
	report("read", err,
		map[bool]string{true: "equal", false: "different"}[rules.Equal(manyPrefixes(1, 5), got)])
	_, err = Probe()
	report("probe", err, "works")
	_, err = Apply(nil, rejectedRuleset())
	report("unsupported rule", err, "accepted")
	if _, err := stdin.ReadString('\n'); err != nil {
		return nil
	}
	removed, err := Remove(nil)
	report("removed", err, removed)
	return nil
}

// startWithCapabilities starts a process in the namespace. The process runs the role with exactly
// the given capabilities.
func startWithCapabilities(t *testing.T, ns *netns.NS, capabilities []int, role string) *process {
	t.Helper()
	args := []string{role}
	for _, c := range capabilities {
		args = append(args, strconv.Itoa(c))
	}
	var p *process
	err := ns.Do(func() error {
		p = startProcess(t, nil, nil, "give up capabilities", args...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// giveUpCapabilities runs the role of the first argument with only the capabilities of the other
// arguments. It executes the program again, because exec gives a process of uid 0 the capabilities
// of its bounding set.
func giveUpCapabilities(_ *netns.NS, _ *bufio.Reader, args []string) error {
	runtime.LockOSThread()
	kept := map[string]bool{}
	for _, c := range args[1:] {
		kept[c] = true
	}
	for c := 0; ; c++ {
		if kept[strconv.Itoa(c)] {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // there are no more capabilities
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(roleVariable, args[0]); err != nil {
		return err
	}
	return syscall.Exec(exe, []string{exe}, os.Environ())
}

// TestApplyInAnotherUserNamespace uses a network namespace that belongs to another user namespace,
// like the network namespace of a pod with hostUsers: false.
func TestApplyInAnotherUserNamespace(t *testing.T) {
	t.Parallel()
	ns := netnstest.NewInUserNS(t)
	for _, e := range examples {
		rs := compileWith(e.change)
		mustApply(t, ns, rs, Created)
		checkRuleset(t, ns, rs)
		mustApply(t, ns, rs, Unchanged)
		if removed, err := Remove(ns); err != nil || !removed {
			t.Fatalf("removed %t, error %v, want the removal of the table", removed, err)
		}
		checkEmpty(t, ns)
	}
}

// TestErrorOfATooLargeBatchNamesTheLimit sends a batch as root of a user namespace. This user may
// not enlarge the send buffer beyond net.core.wmem_max.
func TestErrorOfATooLargeBatchNamesTheLimit(t *testing.T) {
	t.Parallel()
	netnstest.RequireRoot(t)
	own := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	p := startProcess(t, nil, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: own, GidMappings: own,
	}, "send a big batch")
	if got, want := p.readLine(t), "3000 prefixes: created"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	got := p.readLine(t)
	for _, want := range []string{
		"the kernel refuses to execute a transaction of", "message too long", "net.core.wmem_max",
		"CAP_NET_ADMIN",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("output %q, want an error that contains %q", got, want)
		}
	}
}

// sendBig applies a ruleset that needs a larger send buffer than the default, and then sends a
// batch that exceeds the maximum size of the send buffer.
func sendBig(_ *netns.NS, _ *bufio.Reader, _ []string) error {
	const prefixes = 3000
	rs := manyPrefixes(0, prefixes)
	result, err := Apply(nil, rs)
	if err != nil {
		return err
	}
	fmt.Printf("%d prefixes: %s\n", prefixes, result.Outcome)
	text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Println(c.commit(&Transaction{
		buf: make([]byte, 2*limit), descriptions: make([]description, 3),
	}))
	return nil
}
