package netns_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	library "github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/thread"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachWayToOpenReturnsTheSameNamespace(t *testing.T) {
	want := netnstest.New(t)
	pid := startSleeper(t, want).Process.Pid
	for _, tc := range []struct {
		variant string
		open    func() (*netns.NS, error)
		name    string
	}{
		{"file", open(fmt.Sprintf("/proc/%d/ns/net", pid)), fmt.Sprintf("/proc/%d/ns/net", pid)},
		{"process", openPID(pid), fmt.Sprintf("pid %d", pid)},
		{"handle", fromHandle(want.Handle()), want.ID().String()},
	} {
		t.Run(tc.variant, func(t *testing.T) {
			n, err := tc.open()
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			if n.ID() != want.ID() {
				t.Errorf("ID %v, want %v", n.ID(), want.ID())
			}
			if n.String() != tc.name {
				t.Errorf("String %q, want %q", n, tc.name)
			}
			if flags, err := unix.FcntlInt(uintptr(n.FD()), unix.F_GETFD, 0); err != nil ||
				flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags %#x (%v), want close-on-exec", flags, err)
			}
			if got := idInDo(t, n); got != want.ID() {
				t.Errorf("Do runs in %v, want %v", got, want.ID())
			}
		})
	}
}

func TestFromHandleDuplicatesTheDescriptor(t *testing.T) {
	want := netnstest.New(t)
	h, err := library.GetFromPid(startSleeper(t, want).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	n, err := netns.FromHandle(h)
	if err != nil {
		t.Fatal(err)
	}
	if !n.Handle().Equal(h) || n.Handle() == h {
		t.Errorf("handle %v, want a duplicate of %v", n.Handle(), h)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := idInDo(t, n); got != want.ID() {
		t.Errorf("after the original was closed, Do runs in %v, want %v", got, want.ID())
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n.Handle() != library.None() || (*netns.NS)(nil).Handle() != library.None() {
		t.Errorf("handles %v of a closed NS and %v of a nil NS, want none", n.Handle(),
			(*netns.NS)(nil).Handle())
	}
}

// TestOpenAcceptsAFileOnlyWhileItIsMounted binds and unmounts the file like ip netns add and ip
// netns delete, in a new mount namespace.
func TestOpenAcceptsAFileOnlyWhileItIsMounted(t *testing.T) {
	want := netnstest.New(t)
	path := filepath.Join(t.TempDir(), "pod")
	touch(t, path)
	err := thread.Run(thread.Work{
		Enter: func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		},
		Do: func() error {
			if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", want.FD()), path, "", unix.MS_BIND,
				""); err != nil {
				return err
			}
			n, err := netns.Open(path)
			if err != nil {
				return err
			}
			defer n.Close()
			if n.ID() != want.ID() {
				t.Errorf("mounted: ID %v, want %v", n.ID(), want.ID())
			}
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				return err
			}
			_, err = netns.Open(path)
			checkError(t, err, nil, path, "not a namespace file")
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenRejectsOtherFilesAndEndedProcesses(t *testing.T) {
	dir := t.TempDir()
	plain, fifo := filepath.Join(dir, "plain"), filepath.Join(dir, "fifo")
	touch(t, plain)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	dead := exec.Command(netnstest.RequireBinary(t, "cat"))
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		name   string
		open   func() (*netns.NS, error)
		target error // nil: any error
		text   []string
	}{
		{
			"a missing file", open(filepath.Join(dir, "none")), fs.ErrNotExist,
			[]string{dir + "/none"},
		},
		{"a plain file", open(plain), nil, []string{plain, "not a namespace file"}},
		{"a FIFO", open(fifo), nil, []string{fifo, "not a namespace file"}},
		{"a directory", open(dir), nil, []string{dir, "not a namespace file"}},
		{
			"a mount namespace", open("/proc/self/ns/mnt"), nil,
			[]string{"/proc/self/ns/mnt", "a mount namespace"},
		},
		{"a user namespace", open("/proc/self/ns/user"), nil, []string{"a user namespace"}},
		{
			"a process that was reaped", openPID(dead.Process.Pid), fs.ErrNotExist,
			[]string{fmt.Sprintf("pid %d", dead.Process.Pid), "has ended"},
		},
		{"a zombie", openPID(zombie(t)), fs.ErrNotExist, []string{"has ended"}},
		{"pid 0", openPID(0), nil, []string{"pid 0", "not a process id"}},
		{"a descriptor that is not open", fromHandle(-1), unix.EBADF, []string{"descriptor -1"}},
		{
			"a descriptor of another kind of file", fromHandle(0), nil,
			[]string{"descriptor 0", "not a namespace file"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := netnstest.Descriptors(t)
			n, err := tc.open()
			if n != nil {
				t.Errorf("got the namespace %v, want nil", n)
			}
			checkError(t, err, tc.target, tc.text...)
			if after := netnstest.Descriptors(t); after != before {
				t.Errorf("%d descriptors before, %d after, want the same number", before, after)
			}
		})
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	n := netnstest.New(t)
	id := n.ID()
	for range 2 {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n.FD() != -1 || n.ID() != id {
		t.Errorf("closed: FD %d, ID %v, want -1 and still %v", n.FD(), n.ID(), id)
	}
	checkError(t, n.Do(func() error {
		t.Error("Do of a closed NS called fn")
		return nil
	}), os.ErrClosed, id.String())
}

func TestNilIsTheNamespaceOfTheThread(t *testing.T) {
	var own *netns.NS
	if own.FD() != -1 || own.Close() != nil || own.String() != own.ID().String() {
		t.Errorf("FD %d, String %q, want -1, the ID %v, and Close without error", own.FD(), own,
			own.ID())
	}
	n := netnstest.New(t)
	if own.ID() == n.ID() || own.ID() == (netns.ID{}) {
		t.Errorf("own ID %v, ID of another namespace %v, want different IDs other than zero", own.ID(),
			n.ID())
	}
	if got := idInDo(t, n); got != n.ID() {
		t.Errorf("ID %v of a nil NS in %v, want %v", got, n, n.ID())
	}
}

func open(path string) func() (*netns.NS, error) {
	return func() (*netns.NS, error) { return netns.Open(path) }
}

func openPID(pid int) func() (*netns.NS, error) {
	return func() (*netns.NS, error) { return netns.OpenPID(pid) }
}

func fromHandle(h library.NsHandle) func() (*netns.NS, error) {
	return func() (*netns.NS, error) { return netns.FromHandle(h) }
}

// idInDo returns the ID of the namespace in which n.Do runs a function.
func idInDo(t *testing.T, n *netns.NS) (id netns.ID) {
	t.Helper()
	if err := n.Do(func() error { id = (*netns.NS)(nil).ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// startSleeper starts a process in n that runs until the test ends.
func startSleeper(t *testing.T, n *netns.NS) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, "cat"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd
}

// zombie returns the id of a process that has ended and is not reaped before the test ends.
func zombie(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(netnstest.RequireBinary(t, "cat"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT,
		nil); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// countEntries returns the number of entries of a directory of /proc.
func countEntries(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// checkError checks that err wraps target, unless target is nil, and contains every text.
func checkError(t *testing.T, err, target error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want an error that contains %q", texts)
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("error %q does not wrap %q", err, target)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not contain %q", err, text)
		}
	}
}
