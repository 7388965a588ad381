package livetrace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/owner"
	"github.com/sluice-mesh/sluice/rules"
)

// Processes finds the process that has the socket of a connection open. It reads /proc once for all
// connections.
func TestProcessesAreFoundBySocket(t *testing.T) {
	ns := netnstest.New(t)
	var socket *net.UDPConn
	if err := ns.Do(func() (err error) {
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	id, proc := strings.Repeat("0123456789abcdef", 4), t.TempDir()
	process := filepath.Join(proc, "4711")
	if err := os.MkdirAll(filepath.Join(process, "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var link string
	if err := raw.Control(func(fd uintptr) {
		link, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	}); err != nil || link == "" {
		t.Fatalf("link %q of the descriptor, error %v; want the link of a socket", link, err)
	}
	for file, text := range map[string]string{
		"status": "Name:\tcurl\nGid:\t7\t7\t7\t8\n",
		"cgroup": "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope\n",
	} {
		if err := os.WriteFile(filepath.Join(process, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(link, filepath.Join(process, "fd", "3")); err != nil {
		t.Fatal(err)
	}
	// A process of another namespace has the same socket open. It is searched last.
	outside := filepath.Join(proc, "1")
	for path, target := range map[string]string{
		filepath.Join(outside, "fd", "3"):   link,
		filepath.Join(outside, "ns", "net"): "/proc/self/ns/net",
		filepath.Join(process, "ns", "net"): fmt.Sprintf("/proc/self/fd/%d", ns.FD()),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	n, err := livetrace.OpenNamespace(ns, proc)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	local := socket.LocalAddr().(*net.UDPAddr).AddrPort()
	want := livetrace.Process{
		Owner: rules.Owner{UID: 0, GID: 8}, PID: 4711, Name: "curl", Container: id,
	}
	var connections []livetrace.Connection
	senders := map[livetrace.Connection]livetrace.Process{}
	for port := range uint16(100) {
		c := livetrace.Connection{
			Protocol: rules.UDP, Source: local,
			Destination: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port),
		}
		connections, senders[c] = append(connections, c), want
	}
	connections = append(connections, livetrace.Connection{
		Protocol: rules.UDP, Destination: connections[1].Destination,
		Source: netip.AddrPortFrom(local.Addr(), local.Port()+1),
	})
	opened := countOpens(t, filepath.Join(process, "fd"))
	if got := n.Processes(t.Context(), connections); !maps.Equal(got, senders) {
		t.Errorf("got %+v, want %+v", got, senders)
	}
	if n := opened(); n != 1 {
		t.Errorf("the descriptors of the process are read %d times for 100 connections, want once", n)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	got := n.Processes(canceled, connections[:1])[connections[0]]
	if reads := opened(); got != (livetrace.Process{GroupUnknown: true}) || reads != 0 {
		t.Errorf("without time to search: got %+v after %d searches, want an unknown process", got,
			reads)
	}
	ending := &endingContext{Context: t.Context()}
	if got := n.Processes(ending, connections[:1])[connections[0]]; got != (livetrace.Process{GroupUnknown: true}) {
		t.Errorf("without time to search all descriptors of a process: got %+v, want an unknown process", got)
	}
	opened()
	if at, ok := n.Listener(rules.UDP, local.Port()); !ok || at != local {
		t.Errorf("UDP listener %v, found %v, want %v", at, ok, local)
	}
	if at, ok := n.Listener(rules.TCP, local.Port()); ok {
		t.Errorf("got a TCP listener at %v, want none", at)
	}
	if err := os.Remove(filepath.Join(process, "status")); err != nil {
		t.Fatal(err)
	}
	want = livetrace.Process{GroupUnknown: true, PID: 4711, Container: id}
	if got := n.Processes(t.Context(), connections[:1]); got[connections[0]] != want {
		t.Errorf("without the file status: got %+v, want %+v", got, want)
	}
}

// An endingContext is done from the second call of Err.
type endingContext struct {
	context.Context
	calls int
}

func (c *endingContext) Err() error {
	if c.calls++; c.calls > 1 {
		return context.DeadlineExceeded
	}
	return nil
}

// The kernel reports the user 0 for a socket in the state TIME_WAIT, whatever user opened it.
func TestClosedSocketHasNoProcess(t *testing.T) {
	ns := netnstest.New(t)
	var server, client net.Conn
	if err := ns.Do(func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		if client, err = net.Dial("tcp4", l.Addr().String()); err != nil {
			return err
		}
		server, err = l.Accept()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	proc := t.TempDir()
	n, err := livetrace.OpenNamespace(ns, proc)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	c := livetrace.Connection{
		Protocol:    rules.TCP,
		Source:      client.LocalAddr().(*net.TCPAddr).AddrPort(),
		Destination: client.RemoteAddr().(*net.TCPAddr).AddrPort(),
	}
	elsewhere := c
	elsewhere.Destination = netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), c.Destination.Port())
	connections := []livetrace.Connection{c, elsewhere}
	// The group is unknown, because no process is visible.
	want := map[livetrace.Connection]livetrace.Process{c: {GroupUnknown: true}}
	if got := n.Processes(t.Context(), connections); !maps.Equal(got, want) {
		t.Errorf("connected: processes %+v, want %+v", got, want)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	// The server sees the end of the connection after the client's socket has changed its state.
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("error %v, want the end of the connection", err)
	}
	if got := n.Processes(t.Context(), connections); len(got) > 0 {
		t.Errorf("closed by the client: processes %+v, want none", got)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	searches := countOpens(t, proc)
	if got := n.Processes(t.Context(), connections); len(got) > 0 {
		t.Errorf("in the state TIME_WAIT: processes %+v, want none", got)
	}
	if n := searches(); n != 0 {
		t.Errorf("the processes are listed %d times although no socket is open, want never", n)
	}
}

// TestOwnersHaveIDsOfTheUserNamespace covers a pod with hostUsers: false. The kernel and /proc
// report ids of this process's user namespace.
func TestOwnersHaveIDsOfTheUserNamespace(t *testing.T) {
	ns := netnstest.NewInUserNS(t)
	var socket *net.UDPConn
	if err := ns.Do(func() error {
		return owner.As(netnstest.UserNSBase+1337, netnstest.UserNSBase+1337, func() (err error) {
			socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	c := livetrace.Connection{
		Protocol: rules.UDP, Source: socket.LocalAddr().(*net.UDPAddr).AddrPort(),
		Destination: netip.MustParseAddrPort("10.0.0.1:53"),
	}
	event := rules.Owner{UID: netnstest.UserNSBase + 7, GID: netnstest.UserNSBase + 8}
	open := func() *livetrace.Namespace {
		n, err := livetrace.OpenNamespace(ns, "/proc")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		return n
	}
	unmapped := open()
	if found := unmapped.Processes(t.Context(), []livetrace.Connection{c}); len(found) > 0 {
		t.Errorf("processes %+v without a process in the user namespace, want none", found)
	}
	if o, ok := unmapped.TranslateOwner(event); ok {
		t.Errorf("owner %+v without a process in the user namespace, want none", o)
	}
	netnstest.StartInUserNS(t, ns)
	n := open()
	if found := n.Processes(t.Context(), []livetrace.Connection{c}); found[c].Owner.UID != 1337 {
		t.Errorf("processes %+v, want a process with uid 1337", found)
	}
	want := rules.Owner{UID: 7, GID: 8}
	if o, ok := n.TranslateOwner(event); o != want || !ok {
		t.Errorf("owner %+v, %t, want %+v and true", o, ok, want)
	}
}

// countOpens returns a function that returns how often the directory was opened since its last call
// or, at the first call, since countOpens returned.
func countOpens(t *testing.T, dir string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	return func() int {
		// Each open is followed by a close. Without the close events, the kernel would merge the
		// opens into one event.
		events := make([]byte, 1<<16)
		n, err := unix.Read(fd, events)
		if errors.Is(err, unix.EAGAIN) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return n / unix.SizeofInotifyEvent / 2
	}
}
