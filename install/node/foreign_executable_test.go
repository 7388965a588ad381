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

// TestNodeIsNotReadyIfAForeignExecutableCannotBeReplaced checks that a foreign executable with the
// plugin's name is detected by its content.
func TestNodeIsNotReadyIfAForeignExecutableCannotBeReplaced(t *testing.T) {
	for name, keep := range map[string]func(t *testing.T, tn *testNode) (release func()){
		"an immutable file": func(t *testing.T, tn *testNode) func() {
			tn.putExecutable("sluice-cni", script)
			return filetest.Immutable(t, tn.path("bin/sluice-cni"))
		},
		"an immutable file of the same size": func(t *testing.T, tn *testNode) func() {
			tn.putExecutable("sluice-cni", script+strings.Repeat("#", len(pluginV1)-len(script)))
			return filetest.Immutable(t, tn.path("bin/sluice-cni"))
		},
		"an immutable no-op program": func(t *testing.T, tn *testNode) func() {
			tn.putExecutable("sluice-cni", noop)
			return filetest.Immutable(t, tn.path("bin/sluice-cni"))
		},
		"an immutable directory": func(t *testing.T, tn *testNode) func() {
			tn.putExecutable("sluice-cni", script)
			return filetest.Immutable(t, tn.path("bin"))
		},
	} {
		for _, when := range []string{"from the beginning", "later"} {
			t.Run(name+" "+when, func(t *testing.T) {
				tn := newTestNode(t)
				tn.put("conf/10-a.conflist", list("calico"))
				now := time.Unix(1_000_000, 0)
				n := tn.nodeAt(tn.settings, func() time.Time { return now })
				if when == "later" {
					tn.mustBeInstalled(n.Reconcile(t.Context()))
				}
				release := keep(t, tn)
				s := n.Reconcile(t.Context())
				tn.wantProblem(s, node.WrongExecutable, tn.path("bin/sluice-cni"), "sha256",
					"operation not permitted", "chattr -i")
				if s.Executable != node.OtherProgram {
					t.Errorf("the executable is %q, want %q", s.Executable, node.OtherProgram)
				}
				second := n.Reconcile(t.Context())
				if len(second.Problems) == 0 || second.Problems[0] != s.Problems[0] {
					t.Errorf("the message differs between reconciliations, and would be logged in each:\n%v\n%v", s.Problems, second.Problems)
				}
				if got := second.Totals.FailedWrites["binary"]; got != 2 {
					t.Errorf("%d failed writes are counted, want 2", got)
				}
				release()
				now = now.Add(time.Minute)
				s = n.Reconcile(t.Context())
				tn.mustBeInstalled(s)
				if s.Executable != node.Verified || !tn.executableIs(pluginV1) {
					t.Errorf("after the release the executable is %q, want %q", s.Executable, node.Verified)
				}
			})
		}
	}
}

// TestElementIsNotInsertedForAForeignExecutable checks that the chain does not get an element that
// would run a foreign program.
func TestElementIsNotInsertedForAForeignExecutable(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.putExecutable("sluice-cni", script)
	filetest.Immutable(t, tn.path("bin/sluice-cni"))
	tn.reconcile()
	tn.wantChains(map[string]string{"10-a.conflist": "calico"})
}

// TestAForeignExecutableThatIsMountedIsReported covers a file that is mounted over the executable.
// The agent cannot replace such a file.
func TestAForeignExecutableThatIsMountedIsReported(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.putExecutable("script", script)
	tn.must(unix.Mount(tn.path("bin/script"), tn.path("bin/sluice-cni"), "", unix.MS_BIND, ""))
	s := tn.reconcile()
	tn.wantProblem(s, node.WrongExecutable, tn.path("bin/sluice-cni"), "device or resource busy", "umount")
	tn.must(unix.Unmount(tn.path("bin/sluice-cni"), unix.MNT_DETACH))
	tn.mustBeInstalled(tn.reconcile())
}

// TestAnEarlierVersionThatCannotBeReplacedWorks checks that an earlier version of the plugin that
// cannot be replaced is accepted. The next agent recognizes this version too, by its checksum.
func TestAnEarlierVersionThatCannotBeReplacedWorks(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	release := filetest.Immutable(t, tn.path("bin/sluice-cni"))
	for range 2 {
		s := tn.nodeOf(tn.upgraded()).Reconcile(t.Context())
		tn.mustBeInstalled(s)
		if s.Executable != node.Outdated || len(s.Problems) != 1 {
			t.Errorf("the executable is %q, problems %v; want %q and one problem", s.Executable, s.Problems, node.Outdated)
		}
	}
	if !tn.elementIs(elementV1) {
		t.Error("the element was upgraded although the executable was not")
	}
	// The chain loses the element. The earlier version may refuse the element of the new one.
	for _, change := range []func(*node.Settings){
		func(*node.Settings) {}, func(s *node.Settings) { s.IstioOwnedCNIConfig = true },
		func(s *node.Settings) { s.Chained = false },
	} {
		tn.put("conf/10-a.conflist", list("calico"))
		s := tn.upgraded()
		change(&s)
		tn.mustBeInstalled(tn.nodeOf(s).Reconcile(t.Context()))
		for name := range tn.chains() {
			if strings.Contains(tn.read("conf/"+name), `"debug"`) {
				t.Errorf("%s has the element of another version than the installed one", name)
			}
		}
		if !tn.elementIs(elementV1) {
			t.Errorf("chains %v: an element was written for another version than the installed one", tn.chains())
		}
	}
	release()
	s := tn.nodeOf(tn.upgraded()).Reconcile(t.Context())
	tn.mustBeInstalled(s)
	if s.Executable != node.Verified || !tn.executableIs(pluginV2) {
		t.Errorf("after the release the executable is %q, want %q", s.Executable, node.Verified)
	}
}

// TestUnchangedExecutableIsNotReadAgain checks that the executable is read again only if its change
// time, its size or its inode has changed.
func TestUnchangedExecutableIsNotReadAgain(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	if read := countOpens(t, tn.path("bin/sluice-cni"), func() {
		for range 10 {
			tn.mustBeInstalled(n.Reconcile(t.Context()))
		}
	}); read != 0 {
		t.Errorf("the unchanged file was opened %d times in 10 reconciliations, want never", read)
	}
	if read := countOpens(t, tn.path("bin/sluice-cni"), func() {
		tn.must(unix.Chmod(tn.path("bin/sluice-cni"), 0o755))
		tn.mustBeInstalled(n.Reconcile(t.Context()))
	}); read == 0 {
		t.Error("the file was not read after a change")
	}
}

// countOpens returns how often a file is opened while do runs.
func countOpens(t *testing.T, path string, do func()) (n int) {
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
