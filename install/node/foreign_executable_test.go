package node_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

const script = "#!/bin/sh\nexit 0\n"

// TestAWrongExecutableThatCannotBeReplacedIsNotReady checks that a foreign executable with the
// plugin's name is detected by its content.
func TestAWrongExecutableThatCannotBeReplacedIsNotReady(t *testing.T) {
	for name, keep := range map[string]func(t *testing.T, b *testNode) (release func()){
		"an immutable file": func(t *testing.T, b *testNode) func() {
			b.executable("sluice-cni", script)
			return filetest.Immutable(t, b.path("bin/sluice-cni"))
		},
		"an immutable file of the same size": func(t *testing.T, b *testNode) func() {
			b.executable("sluice-cni", script+strings.Repeat("#", len(pluginV1)-len(script)))
			return filetest.Immutable(t, b.path("bin/sluice-cni"))
		},
		"an immutable no-op program": func(t *testing.T, b *testNode) func() {
			b.executable("sluice-cni", noop)
			return filetest.Immutable(t, b.path("bin/sluice-cni"))
		},
		"an immutable directory": func(t *testing.T, b *testNode) func() {
			b.executable("sluice-cni", script)
			return filetest.Immutable(t, b.path("bin"))
		},
	} {
		for _, when := range []string{"from the beginning", "later"} {
			t.Run(name+" "+when, func(t *testing.T) {
				b := newTestNode(t)
				b.put("conf/10-a.conflist", list("calico"))
				now := time.Unix(1_000_000, 0)
				n := b.nodeOf(b.settings, node.Options{Now: func() time.Time { return now }})
				if when == "later" {
					b.installed(n.Reconcile(t.Context()))
				}
				release := keep(t, b)
				s := n.Reconcile(t.Context())
				b.says(s, node.WrongExecutable, b.path("bin/sluice-cni"), "sha256",
					"operation not permitted", "chattr -i")
				if s.Executable != node.OtherProgram {
					t.Errorf("the executable is %q", s.Executable)
				}
				second := n.Reconcile(t.Context())
				if len(second.Problems) == 0 || second.Problems[0] != s.Problems[0] {
					t.Errorf("the message differs between passes, and would be logged in each:\n%v\n%v", s.Problems, second.Problems)
				}
				if got := second.Totals.FailedWrites["binary"]; got != 2 {
					t.Errorf("%d of 2 failed writes are counted", got)
				}
				release()
				now = now.Add(time.Minute)
				s = n.Reconcile(t.Context())
				b.installed(s)
				if s.Executable != node.Verified || !b.executableIs(pluginV1) {
					t.Errorf("the executable is %q", s.Executable)
				}
			})
		}
	}
}

// TestAWrongExecutableIsNotPutIntoTheChain checks that the chain does not get an entry that would
// run a foreign program.
func TestAWrongExecutableIsNotPutIntoTheChain(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.executable("sluice-cni", script)
	filetest.Immutable(t, b.path("bin/sluice-cni"))
	b.reconcile()
	b.wantChains(map[string]string{"10-a.conflist": "calico"})
}

// TestAWrongExecutableThatIsMounted covers a file that is mounted over the executable, which cannot
// be replaced either.
func TestAWrongExecutableThatIsMounted(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	b.executable("script", script)
	b.must(unix.Mount(b.path("bin/script"), b.path("bin/sluice-cni"), "", unix.MS_BIND, ""))
	s := b.reconcile()
	b.says(s, node.WrongExecutable, b.path("bin/sluice-cni"), "device or resource busy", "umount")
	b.must(unix.Unmount(b.path("bin/sluice-cni"), unix.MNT_DETACH))
	b.installed(b.reconcile())
}

// TestAnEarlierVersionThatCannotBeReplacedWorks checks that an earlier version of the plugin that
// cannot be replaced is accepted. The next agent recognizes it too, by its digest.
func TestAnEarlierVersionThatCannotBeReplacedWorks(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	release := filetest.Immutable(t, b.path("bin/sluice-cni"))
	for range 2 {
		s := b.nodeOf(b.upgraded(), node.Options{}).Reconcile(t.Context())
		b.installed(s)
		if s.Executable != node.Outdated || len(s.Problems) != 1 {
			t.Errorf("the executable is %q: %v", s.Executable, s.Problems)
		}
	}
	if !b.elementIs(elementV1) {
		t.Error("the old version has the new configuration")
	}
	release()
	s := b.nodeOf(b.upgraded(), node.Options{}).Reconcile(t.Context())
	b.installed(s)
	if s.Executable != node.Verified || !b.executableIs(pluginV2) {
		t.Errorf("the executable is %q", s.Executable)
	}
}

// TestVerificationReusesTheSnapshot checks that a file is read again only if its status has
// changed.
func TestVerificationReusesTheSnapshot(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	n := b.node()
	b.installed(n.Reconcile(t.Context()))
	if read := openings(t, b.path("bin/sluice-cni"), func() {
		for range 10 {
			b.installed(n.Reconcile(t.Context()))
		}
	}); read != 0 {
		t.Errorf("the file was opened %d times in 10 passes", read)
	}
	if read := openings(t, b.path("bin/sluice-cni"), func() {
		b.must(unix.Chmod(b.path("bin/sluice-cni"), 0o755))
		b.installed(n.Reconcile(t.Context()))
	}); read == 0 {
		t.Error("the file was not read after a change")
	}
}

// openings returns how often a file is opened during do.
func openings(t *testing.T, path string, do func()) (n int) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	do()
	buf := make([]byte, 4096)
	got, err := unix.Read(fd, buf)
	if err != nil {
		return 0
	}
	return got / unix.SizeofInotifyEvent // events of a watched file have no name
}
