package established_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/conntrack/conntracktest"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// maxMemory is the memory that End needs according to the documentation of package established.
const maxMemory = 40 << 20

// TestMemoryOfManyConnections measures the memory that End needs for 200,000 conntrack entries and
// about as many sockets as it keeps, in a process of its own.
func TestMemoryOfManyConnections(t *testing.T) {
	if path := os.Getenv("SLUICE_END_NETNS"); path != "" {
		endManyConnections(t, path)
		return
	}
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("takes half a minute: set SLUICE_LONG=1")
	}
	ns := netnstest.NewPair(t).Pod
	conntracktest.AddTCP(t, ns, testbed.PodIP4, 200_000)
	connect(t, ns, 65_000)
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfManyConnections$", "-test.v")
	// The memory limit makes the garbage small.
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=32MiB",
		fmt.Sprintf("SLUICE_END_NETNS=/proc/%d/fd/%d", os.Getpid(), ns.FD()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// endManyConnections ends the connections of a network namespace, and checks the memory that this
// needs.
func endManyConnections(t *testing.T, path string) {
	ns, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	rs := capturingRules(rules.ModeRedirect)
	before, start := maxResident(t), time.Now()
	report, err := established.End(ns, rs, established.Options{ProcDir: "/proc", Time: 20 * time.Second})
	used := maxResident(t) - before
	t.Logf("%d MiB, %s, report %+v, error %v", used>>20, time.Since(start), report, err)
	if used > maxMemory {
		t.Errorf("End needs %d MiB, want at most %d MiB", used>>20, maxMemory>>20)
	}
}

// connect opens n TCP connections over lo, whose clients are closed and whose servers are not
// accepted. The kernel lists both sockets of a connection for a minute, and neither has a
// descriptor.
func connect(t *testing.T, ns *netns.NS, n int) {
	t.Helper()
	if err := ns.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/core/somaxconn", []byte("65535"), 0); err != nil {
			return err
		}
		l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(l) })
		server := unix.SockaddrInet4{Port: 1000, Addr: [4]byte{127, 0, 0, 1}}
		if err := errors.Join(unix.Bind(l, &server), unix.Listen(l, n)); err != nil {
			return err
		}
		for i := range n {
			c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			// Without a port, the kernel would search for a free one.
			client := unix.SockaddrInet4{
				Port: 2000 + i%1000, Addr: [4]byte{127, 1, byte(i / 1000), 1},
			}
			if err := errors.Join(unix.Bind(c, &client), unix.Connect(c, &server),
				unix.Close(c)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// maxResident returns the maximum resident memory of the process so far, in bytes.
func maxResident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "\nVmHWM:")
	var kib int
	if _, err := fmt.Sscanf(line, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
