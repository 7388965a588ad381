package netns_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestDoReturnsTheErrorOfFn(t *testing.T) {
	boom := errors.New("boom")
	for _, n := range []*netns.NS{nil, netnstest.New(t)} {
		if err := n.Do(func() error { return boom }); !errors.Is(err, boom) {
			t.Errorf("%v: error %v, want %v", n, err, boom)
		}
	}
}

func TestDoNests(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	err := a.Do(func() error {
		thread := unix.Gettid()
		if got := idInDo(t, b); got != b.ID() {
			t.Errorf("Do of b within a runs in %v, want %v", got, b.ID())
		}
		return a.Do(func() error {
			if unix.Gettid() != thread {
				t.Error("Do of a within a changed the thread")
			}
			if got := (*netns.NS)(nil).ID(); got != a.ID() {
				t.Errorf("Do of a within a runs in %v, want %v", got, a.ID())
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoInManyNamespacesConcurrently(t *testing.T) {
	var own *netns.NS
	original := own.ID()
	var wg sync.WaitGroup
	for range 64 {
		n := netnstest.New(t)
		wg.Go(func() {
			for range 50 {
				err := n.Do(func() error {
					runtime.Gosched()
					if got := own.ID(); got != n.ID() {
						return fmt.Errorf("Do runs in %v, want %v", got, n.ID())
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if got := own.ID(); got != original {
					t.Errorf("the goroutine is in %v after Do, want %v", got, original)
				}
			}
		})
	}
	wg.Wait()
	waitForThreads(t, original)
}

func TestFnStaysInsideAfterClose(t *testing.T) {
	n := netnstest.New(t)
	id := n.ID()
	err := n.Do(func() error {
		if err := n.Close(); err != nil {
			return err
		}
		if got := (*netns.NS)(nil).ID(); got != id {
			return fmt.Errorf("fn is in %v after Close, want %v", got, id)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPanicReachesTheCaller(t *testing.T) {
	n := netnstest.New(t)
	original := (*netns.NS)(nil).ID()
	func() {
		defer func() {
			v := recover()
			if p, ok := v.(*netns.Panic); !ok || p.Value != "boom" {
				t.Errorf("recovered %v, want a *Panic of boom", v)
			}
		}()
		_ = n.Do(func() error { panic("boom") })
	}()
	waitForThreads(t, original)
}

func TestGoexitReachesTheCaller(t *testing.T) {
	n := netnstest.New(t)
	returned, done := false, make(chan struct{})
	go func() {
		defer close(done)
		_ = n.Do(func() error { runtime.Goexit(); return nil })
		returned = true
	}()
	<-done
	if returned {
		t.Error("Do returned after Goexit in fn")
	}
}

func TestThreadWhoseNamespaceCannotBeRestoredEnds(t *testing.T) {
	n := netnstest.New(t)
	original := (*netns.NS)(nil).ID()
	for range 20 {
		if err := n.Do(dropCapabilities); err != nil {
			t.Fatal(err)
		}
	}
	waitForThreads(t, original)
}

// dropCapabilities drops all capabilities of the calling thread.
func dropCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&hdr, &none[0])
}

func TestDoLeaksNothing(t *testing.T) {
	n := netnstest.New(t)
	do := func() {
		if err := n.Do(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // warm up: the runtime starts its first threads
		do()
	}
	descriptors, threads := netnstest.Descriptors(t), countEntries(t, "/proc/self/task")
	for range 1000 {
		do()
	}
	if got := netnstest.Descriptors(t); got > descriptors {
		t.Errorf("%d descriptors before, %d after, want no more", descriptors, got)
	}
	// The runtime starts threads for other reasons too, more of them on a busy machine.
	if got := countEntries(t, "/proc/self/task"); got > threads+20 {
		t.Errorf("%d threads before, %d after, want at most 20 more", threads, got)
	}
}

func TestNewLeaksNothing(t *testing.T) {
	netnstest.RequireRoot(t)
	descriptors, threads := netnstest.Descriptors(t), countEntries(t, "/proc/self/task")
	for range 100 {
		n, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := netnstest.Descriptors(t); got > descriptors {
		t.Errorf("%d descriptors before, %d after, want no more", descriptors, got)
	}
	rulestest.Eventually(t, fmt.Sprintf("at most %d threads", threads+20), func() bool {
		return countEntries(t, "/proc/self/task") <= threads+20
	})
}

// TestOnlyTheOwnNamespaceNeedsNoPrivilege runs the test binary without capabilities: with uid 1 in
// a new user namespace. The binary receives another network namespace as descriptor 3.
func TestOnlyTheOwnNamespaceNeedsNoPrivilege(t *testing.T) {
	if os.Getenv("SLUICE_TEST_WITHOUT_PRIVILEGE") != "" {
		checkWithoutPrivilege(t)
		return
	}
	n := netnstest.New(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOnlyTheOwnNamespaceNeedsNoPrivilege$", "-test.v")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_WITHOUT_PRIVILEGE=1")
	ids := []syscall.SysProcIDMap{{ContainerID: 1, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
	}
	cmd.ExtraFiles = []*os.File{dupFile(t, n)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the test without privilege: %v:\n%s", err, out)
	}
}

func checkWithoutPrivilege(t *testing.T) {
	foreign, err := netns.FromHandle(3)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	err = foreign.Do(func() error { t.Error("Do without CAP_SYS_ADMIN called fn"); return nil })
	checkError(t, err, unix.EPERM, foreign.String(), "CAP_SYS_ADMIN")

	own, err := netns.OpenPID(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, n := range []*netns.NS{nil, own} {
		if err := n.Do(func() error { return nil }); err != nil {
			t.Errorf("Do in the own namespace %v: %v", n, err)
		}
	}
	created, err := netns.New()
	if created != nil {
		t.Errorf("New returned %v, want nil", created)
	}
	checkError(t, err, unix.EPERM, "CAP_SYS_ADMIN")
}

func dupFile(t *testing.T, n *netns.NS) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(n.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), n.String())
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// waitForThreads waits until every thread of the process is in the namespace. A terminated thread
// may take a moment to disappear.
func waitForThreads(t *testing.T, want netns.ID) {
	t.Helper()
	rulestest.Eventually(t, "every thread is in the original namespace", func() bool {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			var st unix.Stat_t
			err := unix.Stat("/proc/self/task/"+e.Name()+"/ns/net", &st)
			if err == nil && (netns.ID{Dev: st.Dev, Ino: st.Ino}) != want {
				return false
			}
		}
		return true
	})
}

func BenchmarkDo(b *testing.B) {
	socket := func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	noop := func() error { return nil }
	n := netnstest.New(b)
	own, err := netns.OpenPID(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	for _, bc := range []struct {
		name   string
		ns     *netns.NS
		fn     func() error
		locked bool
	}{
		{"nil", nil, noop, false},
		{"own", own, noop, false},
		{"other", n, noop, false},
		{"other, netlink socket", n, socket, false},
		{"other, caller locked", n, noop, true},
	} {
		b.Run(bc.name, func(b *testing.B) {
			if bc.locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			for b.Loop() {
				if err := bc.ns.Do(bc.fn); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	netnstest.RequireRoot(b)
	for b.Loop() {
		n, err := netns.New()
		if err != nil {
			b.Fatal(err)
		}
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// The example opens a listener in the namespace of a pod. The listener stays in this namespace and
// can be used on any thread. If the namespace does not exist, Open fails, as in the output.
func ExampleNS_Do() {
	pod, err := netns.Open("/run/netns/pod")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pod.Close()
	var l net.Listener
	err = pod.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:15001")
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	// Output: network namespace /run/netns/pod: open: no such file or directory
}
