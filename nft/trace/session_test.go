package trace_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// childVariable is the environment variable that makes the test binary call runChild.
const childVariable = "TRACE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runChild()
	}
	goleak.VerifyTestMain(m)
}

// runChild opens and closes sessions until the process is killed.
func runChild() {
	ns, err := netns.Open("/proc/self/fd/3")
	for err == nil {
		var s *trace.Session
		if s, err = trace.Open(ns, trace.Options{}); err == nil {
			fmt.Println("open")
			err = s.Close()
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// tableExists reports whether the namespace has the table of a session.
func tableExists(t *testing.T, ns *netns.NS) bool {
	t.Helper()
	rs, err := nft.ReadAll(ns)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(rs.Tables, func(x rules.Table) bool { return x.Name == trace.Table })
}

func openSession(t *testing.T, ns *netns.NS, f trace.Filter) *trace.Session {
	t.Helper()
	s, err := trace.Open(ns, trace.Options{Filter: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// chains contains two chains that all outgoing packets traverse: one before conntrack and one after
// NAT.
const chains = `table ip seen {
	chain out { type filter hook output priority -310; counter; }
	chain late { type filter hook output priority 10; counter; }
}`

// dial connects to a port of lo without a listener. Over UDP, it also sends a datagram.
func dial(t *testing.T, ns *netns.NS, network string, port int) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := net.Dial(network, fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readUntil reads events until it reads the header of a packet to the port. It returns all events.
func readUntil(t *testing.T, s *trace.Session, port uint16) []trace.Event {
	t.Helper()
	if err := s.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var events []trace.Event
	for {
		b, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, b.Events...)
		if slices.ContainsFunc(b.Events, func(e trace.Event) bool {
			return e.Header != nil && e.Header.Destination.Port() == port
		}) {
			return events
		}
	}
}

// addTables adds tables in nft's syntax.
func addTables(t *testing.T, ns *netns.NS, text string) {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, "nft"), "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if err := ns.Do(func() error {
		out, err := cmd.CombinedOutput()
		return errors.Join(err, outputError(out))
	}); err != nil {
		t.Fatal(err)
	}
}

// outputError returns the output of a program as an error, or nil if it is empty.
func outputError(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	return errors.New(string(out))
}

func TestSessionSeesFirstPacketsFromTheFirstChainOn(t *testing.T) {
	ns := netnstest.New(t)
	addTables(t, ns, chains)
	s := openSession(t, ns, trace.Filter{})
	dial(t, ns, "tcp", 1111)
	dial(t, ns, "udp", 1112)
	var seen []string
	for _, e := range readUntil(t, s, 1112) {
		if e.Kind == trace.Rule && e.Header != nil {
			seen = append(seen,
				fmt.Sprintf("%s %s %d", e.Header.Protocol, e.Chain, e.Header.Destination.Port()))
		}
	}
	// The reset that answers the segment is not traced. The datagram is traced from the priority
	// after conntrack.
	want := []string{
		"tcp segments-output 1111", "tcp out 1111", "tcp late 1111",
		"udp packets-output 1112", "udp late 1112",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
}

func TestFilterSelectsByPort(t *testing.T) {
	ns := netnstest.New(t)
	addTables(t, ns, chains)
	s := openSession(t, ns, trace.Filter{Out: true, Port: 1111})
	dial(t, ns, "tcp", 1110)
	dial(t, ns, "tcp", 1111)
	for _, e := range readUntil(t, s, 1111) {
		if e.Header != nil && e.Header.Destination.Port() != 1111 {
			t.Errorf("a packet to port %d is traced, want only packets to port 1111",
				e.Header.Destination.Port())
		}
	}
}

// TestPacketsThatAnotherProgramTracesAreNotSelected traces a packet for which only a rule of
// another program sets nftrace. The kernel also reports where the packet leaves the chains of the
// session.
func TestPacketsThatAnotherProgramTracesAreNotSelected(t *testing.T) {
	ns := netnstest.New(t)
	addTables(t, ns, `table ip other {
		chain out { type filter hook output priority -310; meta nftrace set 1; }
	}`)
	s := openSession(t, ns, trace.Filter{Port: 1111})
	dial(t, ns, "tcp", 1110)
	dial(t, ns, "tcp", 1111)
	var c trace.Collector
	c.Add(time.Now(), readUntil(t, s, 1111)...)
	selected := map[uint16]bool{}
	for _, p := range c.Take(time.Now().Add(time.Hour)) {
		selected[p.Header().Destination.Port()] = p.Selected()
	}
	if isSelected, traced := selected[1110]; !traced || isSelected {
		t.Errorf("the packet to port 1110 is traced: %t, selected: %t; want true, false",
			traced, isSelected)
	}
	if !selected[1111] {
		t.Error("the packet to port 1111 is not selected")
	}
}

func TestOneSessionAtATime(t *testing.T) {
	ns := netnstest.New(t)
	s := openSession(t, ns, trace.Filter{})
	if _, err := trace.Open(ns, trace.Options{}); !errors.Is(err, trace.ErrBusy) {
		t.Errorf("a second session: error %v, want %v", err, trace.ErrBusy)
	}
	if removed, err := trace.Remove(ns); removed || err != nil || !tableExists(t, ns) {
		t.Errorf("Remove: removed %t, error %v; want the table of a running session to remain",
			removed, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if tableExists(t, ns) {
		t.Error("the table remains after Close")
	}
}

func TestLeftoverTableWithoutOwnerIsRemoved(t *testing.T) {
	ns := netnstest.New(t)
	for _, remove := range []func() error{
		func() error {
			removed, err := trace.Remove(ns)
			if !removed {
				t.Error("Remove reports that there was no table, want the removal of the table")
			}
			return err
		},
		func() error { return openSession(t, ns, trace.Filter{}).Close() },
	} {
		addTables(t, ns, "table inet "+trace.Table+" {}")
		if !tableExists(t, ns) {
			t.Fatal("there is no table to remove")
		}
		if err := remove(); err != nil || tableExists(t, ns) {
			t.Errorf("error %v, want no error and no table", err)
		}
	}
}

// TestLostEventsAreCounted overflows the receive buffer of the socket.
func TestLostEventsAreCounted(t *testing.T) {
	ns := netnstest.New(t)
	addTables(t, ns, chains)
	cmd := exec.Command(netnstest.RequireBinary(t, "iptables-legacy"), "-A", "OUTPUT", "-j",
		"ACCEPT")
	if err := ns.Do(cmd.Run); err != nil {
		t.Fatal(err)
	}
	const buffer = 4096
	l, err := trace.OpenLog(ns, buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s, err := trace.Open(ns, trace.Options{Buffer: buffer})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const packets = 100
	for range packets {
		dial(t, ns, "tcp", 1111)
	}
	if err := s.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Next()
	// Each packet has at least one event in each of the two chains.
	if err != nil || len(b.Events)+int(b.Lost) < 2*packets || b.Lost == 0 {
		t.Errorf("nf_tables: %d events, %d lost, error %v; want lost ones, and at least %d "+
			"together", len(b.Events), b.Lost, err, 2*packets)
	}
	b, err = l.Read()
	if err != nil || len(b.Events)+int(b.Lost) < packets || b.Lost == 0 {
		t.Errorf("iptables-legacy: %d events, %d lost, error %v; want lost ones, and at least %d "+
			"together", len(b.Events), b.Lost, err, packets)
	}
}

// startChild starts a process that opens and closes sessions in the namespace. The process writes
// "open" for each session.
func startChild(t *testing.T, ns *netns.NS) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	file := os.NewFile(uintptr(must(unix.Dup(ns.FD()))), "netns")
	defer func() { _ = file.Close() }()
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestTheNextSessionRemovesTheTableOfAKilledSession also runs on kernels without owner tables,
// where the table of the killed session remains.
func TestTheNextSessionRemovesTheTableOfAKilledSession(t *testing.T) {
	ns := netnstest.New(t)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	hasOwnerTables := major > 5 || major == 5 && minor >= 12
	// A process that is killed between two sessions leaves no table: try again.
	for remains := false; !remains; remains = remains || hasOwnerTables {
		cmd, out := startChild(t, ns)
		if n, err := out.Read(make([]byte, 5)); n == 0 {
			t.Fatalf("read the output of the child: %v", err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		remains = tableExists(t, ns)
		if remains && hasOwnerTables {
			t.Error("the table remains, although the kernel supports owner tables")
		}
		if err := openSession(t, ns, trace.Filter{}).Close(); err != nil || tableExists(t, ns) {
			t.Fatalf("the next session leaves a table behind, error %v", err)
		}
	}
}

// TestKillLeavesNoTable needs a kernel with owner tables.
func TestKillLeavesNoTable(t *testing.T) {
	ns := netnstest.New(t)
	opened := 0
	for range rulestest.Trials(200, os.Getenv) {
		cmd, out := startChild(t, ns)
		// Kill the process at a random moment: before, during or after its first sessions.
		for range rand.IntN(2) {
			if n, _ := out.Read(make([]byte, 5)); n > 0 {
				opened++
			}
		}
		time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if tableExists(t, ns) {
			t.Fatal("the table of a killed session remains")
		}
	}
	if opened == 0 {
		t.Error("no child opened a session")
	}
}

func must(fd int, err error) int {
	if err != nil {
		panic(err)
	}
	return fd
}

// TestSessionWaitsForTheRemovalOfAnotherSession holds the lock for a moment, as the removal of the
// rules of a killed session does.
func TestSessionWaitsForTheRemovalOfAnotherSession(t *testing.T) {
	ns := netnstest.New(t)
	endRemoval, err := trace.Lock(ns)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Lock(ns); !errors.Is(err, trace.ErrBusy) {
		t.Errorf("a second Lock: error %v, want %v", err, trace.ErrBusy)
	}
	time.AfterFunc(50*time.Millisecond, endRemoval)
	release, err := trace.LockSession(ns)
	if err != nil {
		t.Fatalf("a session during the removal: %v", err)
	}
	release()
}
