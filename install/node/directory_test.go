package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// A mountedNode is a testNode whose directories are bind-mounted for the agent, as in the agent's
// container. A process in a second mount namespace represents the runtime.
type mountedNode struct {
	*testNode
	runtime *exec.Cmd
	now     time.Time
	n       *node.Node
}

// newMountedNode returns a mountedNode. The test must run in a private mount namespace; see
// [filetest.Private].
func newMountedNode(t *testing.T) *mountedNode {
	t.Helper()
	m := &mountedNode{testNode: newTestNode(t), now: time.Unix(1_000_000, 0)}
	m.put("node/etc/cni/net.d/10-a.conflist", list("calico"))
	m.must(os.MkdirAll(m.path("node/opt/cni/bin"), 0o755))
	m.settings.NodeCNIConfDir, m.settings.NodeCNIBinDir = m.path("node/etc/cni/net.d"),
		m.path("node/opt/cni/bin")
	m.runtime = exec.CommandContext(t.Context(), "sleep", "infinity")
	m.runtime.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	m.must(m.runtime.Start())
	t.Cleanup(func() {
		_ = m.runtime.Process.Kill()
		_ = m.runtime.Wait()
	})
	root := fmt.Sprintf("/proc/%d/root", m.runtime.Process.Pid)
	m.settings.RuntimeRoot = func() (string, error) { return root, nil }
	m.mount("node/etc/cni/net.d", "conf")
	m.mount("node/opt/cni/bin", "bin")
	m.restart()
	return m
}

func (m *mountedNode) mount(from, to string) {
	m.t.Helper()
	m.must(unix.Mount(m.path(from), m.path(to), "", unix.MS_BIND|unix.MS_REC, ""))
	m.t.Cleanup(func() { m.must(unix.Unmount(m.path(to), unix.MNT_DETACH)) })
}

// restart replaces the agent with a new one.
func (m *mountedNode) restart() {
	m.n = m.nodeAt(m.settings, func() time.Time { return m.now })
}

// reconcileAfter advances the clock and reconciles.
func (m *mountedNode) reconcileAfter(after time.Duration) node.Status {
	m.now = m.now.Add(after)
	return m.n.Reconcile(m.t.Context())
}

// onNode runs a command with the runtime's mounts.
func (m *mountedNode) onNode(argv ...string) {
	m.t.Helper()
	argv = append([]string{"-m", "-t", strconv.Itoa(m.runtime.Process.Pid)}, argv...)
	if out, err := exec.CommandContext(m.t.Context(), "nsenter",
		argv...).CombinedOutput(); err != nil {
		m.t.Fatalf("nsenter %s: %v; output: %s", argv, err, out)
	}
}

// TestNodeIsNotReadyIfTheRuntimeReadsADifferentDirectory covers a mount of the agent that refers to
// the original directory, while the runtime reads a different directory at the same path.
func TestNodeIsNotReadyIfTheRuntimeReadsADifferentDirectory(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for description, change := range map[string]func(m *mountedNode, dir string){
		"moved and created again": func(m *mountedNode, dir string) {
			m.must(os.Rename(dir, dir+".old"))
			m.must(os.CopyFS(dir, os.DirFS(dir+".old")))
		},
		"moved and replaced by a link to a copy": func(m *mountedNode, dir string) {
			m.must(os.Rename(dir, dir+".old"))
			m.must(os.CopyFS(dir+".new", os.DirFS(dir+".old")))
			m.must(os.Symlink(dir+".new", dir))
		},
		"moved with its parent": func(m *mountedNode, dir string) {
			above := filepath.Dir(dir)
			m.must(os.Rename(above, above+".old"))
			m.must(os.CopyFS(above, os.DirFS(above+".old")))
		},
		"removed and created again": func(m *mountedNode, dir string) {
			m.must(os.RemoveAll(dir))
			m.must(os.MkdirAll(dir, 0o755))
		},
		"mounted over on the node": func(m *mountedNode, dir string) {
			m.onNode("mount", "-t", "tmpfs", "tmpfs", dir)
		},
	} {
		for _, dir := range []string{"node/etc/cni/net.d", "node/opt/cni/bin"} {
			m := newMountedNode(t)
			m.mustBeInstalled(m.reconcileAfter(0))
			if got := m.reconcileAfter(0).Directories; got.Configuration != node.Same ||
				got.Binary != node.Same || !got.Known() {
				t.Fatalf("before the change the directories are %+v, want both Same", got)
			}
			change(m, m.path(dir))
			s := m.reconcileAfter(0)
			if !hasBlockingProblem(s, node.DirectoryReplaced) || s.Remount {
				t.Errorf("%s %s: problems %v, Remount %t; want a blocking DirectoryReplaced and no Remount",
					dir, description, s.Problems, s.Remount)
			}
			if s = m.reconcileAfter(time.Second); s.Remount {
				t.Errorf("%s %s: Remount is set after one second", dir, description)
			}
			if s = m.reconcileAfter(2 * time.Second); !s.Remount {
				t.Errorf("%s %s: Remount is not set after three seconds: %+v", dir, description, s.Directories)
			}
		}
	}
}

// TestNodeIsNotReadyIfThePluginUsesADifferentRunDirectory covers a run directory that the plugin
// does not share with the agent: the plugin finds neither its credentials nor the agent.
func TestNodeIsNotReadyIfThePluginUsesADifferentRunDirectory(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for description, change := range map[string]func(m *mountedNode, dir string){
		"removed": func(m *mountedNode, dir string) { m.must(os.RemoveAll(dir)) },
		"removed and created again": func(m *mountedNode, dir string) {
			m.must(os.RemoveAll(dir))
			m.must(os.Mkdir(dir, 0o755))
		},
		"mounted over on the node": func(m *mountedNode, dir string) {
			m.onNode("mount", "-t", "tmpfs", "tmpfs", dir)
		},
	} {
		m := newMountedNode(t)
		dir := m.path("node/run")
		m.must(os.Mkdir(dir, 0o755))
		m.must(os.Mkdir(m.path("run"), 0o755))
		m.mount("node/run", "run")
		m.settings.RunDir, m.settings.NodeRunDir = m.path("run"), dir
		m.restart()
		m.mustBeInstalled(m.reconcileAfter(0))
		change(m, dir)
		s := m.reconcileAfter(time.Second)
		if !hasBlockingProblem(s, node.DirectoryReplaced) || s.Remount {
			t.Errorf("%s: problems %v, Remount %t; want a blocking DirectoryReplaced and no Remount",
				description, s.Problems, s.Remount)
		}
		if s = m.reconcileAfter(3 * time.Second); !s.Remount {
			t.Errorf("%s: Remount is not set after three seconds", description)
		}
	}
}

// TestADirectoryThatIsReachedByALinkIsTheSame covers a directory that is renamed, and whose path is
// then a link to it. Between these steps the directory is missing.
func TestADirectoryThatIsReachedByALinkIsTheSame(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	m := newMountedNode(t)
	m.mustBeInstalled(m.reconcileAfter(0))
	dir := m.path("node/etc/cni/net.d")
	m.must(os.Rename(dir, dir+".real"))
	s := m.reconcileAfter(0)
	if s.Installed() || s.Directories.Configuration != node.Missing {
		t.Errorf("without the directory: %+v, problems %v; want Missing and a blocking problem", s.Directories, s.Problems)
	}
	if s = m.reconcileAfter(time.Hour); s.Remount {
		t.Error("Remount is set, although there is no directory to mount")
	}
	m.must(os.Symlink("net.d.real", dir))
	m.mustBeInstalled(m.reconcileAfter(0))
}

// TestDirectoryThatIsMovedBackIsTheSame checks that the node is ready again, without Remount, after
// a directory was moved away and back.
func TestDirectoryThatIsMovedBackIsTheSame(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	m := newMountedNode(t)
	m.mustBeInstalled(m.reconcileAfter(0))
	dir := m.path("node/etc/cni/net.d")
	for range 3 {
		m.must(os.Rename(dir, dir+".old"))
		m.must(os.Mkdir(dir, 0o755))
		if s := m.reconcileAfter(time.Second); s.Installed() || s.Remount {
			t.Errorf("after the move: problems %v, Remount %t; want a blocking problem and no Remount",
				s.Problems, s.Remount)
		}
		m.must(os.Remove(dir))
		m.must(os.Rename(dir+".old", dir))
		m.mustBeInstalled(m.reconcileAfter(time.Second))
	}
}

// TestAFileThatIsMountedOverOnTheNodeIsReported covers a file that is mounted over the
// configuration or the plugin, and that the runtime uses instead.
func TestAFileThatIsMountedOverOnTheNodeIsReported(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for _, path := range []string{
		"node/etc/cni/net.d/10-a.conflist", "node/opt/cni/bin/sluice-cni",
	} {
		m := newMountedNode(t)
		m.mustBeInstalled(m.reconcileAfter(0))
		m.put("other", list("calico"))
		m.onNode("mount", "--bind", m.path("other"), m.path(path))
		s := m.reconcileAfter(0)
		if s.Installed() || s.Problems[0].Reason != node.DirectoryReplaced {
			t.Errorf("%s: problems %v, want DirectoryReplaced first", path, s.Problems)
		}
		if s = m.reconcileAfter(3 * time.Second); !s.Remount {
			t.Errorf("%s: Remount is not set after three seconds", path)
		}
		m.onNode("umount", m.path(path))
		m.mustBeInstalled(m.reconcileAfter(0))
	}
}

// TestDirectoryThatWasNeverTheNodesMakesTheNodeNotReady covers a directory that was never the one
// on the node, for example because of a wrong setting: the node is not ready, and the agent does
// not restart every few seconds.
func TestDirectoryThatWasNeverTheNodesMakesTheNodeNotReady(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	m := newMountedNode(t)
	m.must(os.MkdirAll(m.path("node/other"), 0o755))
	m.settings.NodeCNIConfDir = m.path("node/other")
	m.restart()
	for range 10 {
		if s := m.reconcileAfter(10 * time.Second); s.Installed() || s.Remount {
			t.Fatalf("problems %v, Remount %t; want a blocking problem and no Remount", s.Problems,
				s.Remount)
		}
	}
	if s := m.reconcileAfter(5 * time.Minute); !s.Remount {
		t.Error("Remount is not set after more than five minutes")
	}
}

// TestADirectoryThatCannotBeComparedIsUnknown checks that the state of a directory that cannot be
// compared is Unknown, and that the node is ready nevertheless. A move of the directory is still
// detected.
func TestADirectoryThatCannotBeComparedIsUnknown(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for reason, root := range map[string]func() (string, error){
		"the runtime's root is not configured": nil,
		"the runtime's root is not accessible": func() (string, error) { return "", unix.EPERM },
		"the runtime's root does not exist":    func() (string, error) { return "/proc/0/root", nil },
	} {
		m := newMountedNode(t)
		m.settings.RuntimeRoot = root
		m.restart()
		s := m.reconcileAfter(0)
		m.mustBeInstalled(s)
		if s.Directories.Known() || s.Directories.Configuration != node.Unknown ||
			s.Directories.Why == "" {
			t.Errorf("%s: the directories are %+v, want Unknown with the reason", reason, s.Directories)
		}
		dir := m.path("node/etc/cni/net.d")
		m.must(os.Rename(dir, dir+".old"))
		m.must(os.CopyFS(dir, os.DirFS(dir+".old")))
		if s = m.reconcileAfter(0); s.Installed() || s.Directories.Configuration != node.Replaced {
			t.Errorf("%s: after the move the directories are %+v, problems %v; want Replaced and a "+
				"blocking problem", reason, s.Directories, s.Problems)
		}
	}
}

// TestMovedDirectoryIsNoticedImmediately checks that a moved directory is noticed by events alone.
func TestMovedDirectoryIsNoticedImmediately(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	m := newMountedNode(t)
	m.mustBeInstalled(m.reconcileAfter(0))
	m.settings.Resync = time.Hour
	statuses := m.runNode(m.node())
	await(t, statuses, "the plugin is installed", node.Status.Installed)
	dir := m.path("node/etc/cni/net.d")
	m.must(os.Rename(dir, dir+".old"))
	m.must(os.CopyFS(dir, os.DirFS(dir+".old")))
	s := await(t, statuses, "the moved directory is noticed", func(s node.Status) bool {
		return s.Directories.Configuration == node.Replaced
	})
	if s.Installed() {
		t.Error("the plugin counts as installed in a directory that the runtime does not read")
	}
	await(t, statuses, "the agent needs new mounts", func(s node.Status) bool { return s.Remount })
}
