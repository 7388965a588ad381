package established_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/nft/conntrack/conntracktest"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// maxMemory is the memory that End needs according to the documentation of package established.
const maxMemory = 40 << 20

// Together, the processes of TestMemoryOfManyConnections open almost as many sockets as End keeps.
// Each opens fewer than the usual limit of descriptors.
const (
	processes  = 8
	perProcess = 8_190 // connections
)

// TestMemoryOfManyConnections measures the memory that End needs for more conntrack entries than
// results that it caches, and for about as many sockets as it keeps, in a process of its own. All
// sockets have a descriptor, so that End also keeps their groups.
func TestMemoryOfManyConnections(t *testing.T) {
	if path := os.Getenv("SLUICE_CONNECT_NETNS"); path != "" {
		if err := openNS(t, path).Do(connect); err != nil {
			t.Fatal(err)
		}
		fmt.Println(connected)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	if path := os.Getenv("SLUICE_END_NETNS"); path != "" {
		endManyConnections(t, openNS(t, path))
		return
	}
	if os.Getenv("SLUICE_LONG") == "" || budgettest.RaceDetector {
		t.Skip("takes half a minute, without the race detector: set SLUICE_LONG=1")
	}
	ns := netnstest.NewPair(t).Pod
	conntracktest.AddTCP(t, ns, testbed.PodIP4, 20_000)
	for range processes {
		startConnections(t, ns)
	}
	cmd := testProcess("SLUICE_END_NETNS", ns)
	cmd.Args = append(cmd.Args, "-test.v")
	// With this limit the garbage collector runs often, so that little garbage counts as used.
	cmd.Env = append(cmd.Env, "GOMEMLIMIT=32MiB")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s", out)
}

// testProcess returns a command that runs TestMemoryOfManyConnections, with a variable that
// contains the path of the namespace.
func testProcess(variable string, ns *netns.NS) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfManyConnections$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=/proc/%d/fd/%d", variable, os.Getpid(), ns.FD()))
	return cmd
}

// openNS opens a namespace until the test ends.
func openNS(t *testing.T, path string) *netns.NS {
	t.Helper()
	ns, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// endManyConnections ends the connections of a network namespace, and checks the memory that this
// needs.
func endManyConnections(t *testing.T, ns *netns.NS) {
	rs := capturingRules(rules.ModeRedirect)
	before, start := budgettest.MaxResident(t), time.Now()
	report, err := established.End(ns, rs, established.Options{ProcDir: "/proc", Time: time.Hour})
	used := budgettest.MaxResident(t) - before
	t.Logf("%d MiB, %s", used>>20, time.Since(start))
	if err != nil || report != (established.Report{}) {
		t.Errorf("report %+v, error %v; want an empty report", report, err)
	}
	if used > maxMemory {
		t.Errorf("End needs %d MiB, want at most %d MiB", used>>20, maxMemory>>20)
	}
}

// connected is the line that a process prints when its connections are open.
const connected = "connected"

// startConnections starts a process that opens connections in the namespace until the test ends,
// and waits until they are open.
func startConnections(t *testing.T, ns *netns.NS) {
	t.Helper()
	cmd := testProcess("SLUICE_CONNECT_NETNS", ns)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	output := bufio.NewReader(stdout)
	if line, err := output.ReadString('\n'); line != connected+"\n" {
		rest, _ := io.ReadAll(output)
		t.Fatalf("%s%s%v", line, rest, err)
	}
}

// connect opens TCP connections over lo in the namespace of the thread.
func connect() error {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(l, loopback), unix.Listen(l, 1)); err != nil {
		return err
	}
	server, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	port := server.(*unix.SockaddrInet4).Port
	for i := range perProcess {
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		// Without a port, the kernel would search for a free one.
		client := &unix.SockaddrInet4{
			Port: 2000 + i%1000, Addr: [4]byte{127, byte(port >> 8), byte(port), byte(i / 1000)},
		}
		if err := errors.Join(unix.Bind(c, client), unix.Connect(c, server)); err != nil {
			return err
		}
		if _, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC); err != nil {
			return err
		}
	}
	return nil
}
