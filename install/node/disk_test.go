package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// mountDisk mounts an empty file system of the given size on the testNode's directory with the
// name. It returns another directory on which the same file system is mounted.
func (tn *testNode) mountDisk(name, size string) (dir string) {
	tn.t.Helper()
	dir = filetest.Disk(tn.t.(*testing.T), size)
	tn.must(unix.Mount(dir, tn.path(name), "", unix.MS_BIND, ""))
	tn.t.Cleanup(func() {
		if err := unix.Unmount(tn.path(name), unix.MNT_DETACH); err != nil {
			tn.t.Error(err)
		}
	})
	return dir
}

// wantBlocked fails the test unless the node has exactly one problem, which is blocking, has the
// reason and contains the text.
func (tn *testNode) wantBlocked(s node.Status, reason node.Reason, text string) {
	tn.t.Helper()
	if s.Installed() || len(s.Problems) != 1 || s.Problems[0].Reason != reason ||
		!strings.Contains(s.Problems[0].Message, text) {
		tn.t.Errorf("installed %t, problems %v; want only a blocking %s with %q", s.Installed(), s.Problems,
			reason, text)
	}
}

func TestAFullDiskOfExecutablesKeepsTheOldPlugin(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	dir := tn.mountDisk("bin", "256k")
	free := filetest.Fill(t, dir)
	tn.wantBlocked(tn.reconcile(), node.DiskFull, tn.path("bin/sluice-cni"))
	// A configuration must not name a missing executable.
	tn.wantChains(map[string]string{"10-a.conflist": "calico"})
	free()
	tn.mustBeInstalled(tn.reconcile())

	free = filetest.Fill(t, dir)
	upgrade := func() node.Status {
		return tn.nodeOf(tn.upgraded()).Reconcile(t.Context())
	}
	s := upgrade()
	if !s.Installed() || len(s.Problems) != 1 || s.Problems[0].Reason != node.DiskFull {
		t.Errorf("upgrade on a full disk: installed %t, problems %v; want only DiskFull, not blocking",
			s.Installed(), s.Problems)
	}
	if !tn.executableIs(pluginV1) || !tn.elementIs(elementV1) {
		t.Error("the executable or the element of the old version was changed")
	}
	// Another program writes the list while the disk is full.
	tn.put("conf/10-a.conflist", list("calico", "tuning"))
	tn.mustBeInstalled(upgrade())
	tn.wantChains(map[string]string{"10-a.conflist": "calico tuning sluice-cni"})
	free()
	tn.mustBeInstalled(upgrade())
	if !tn.executableIs(pluginV2) || !tn.elementIs(elementV2) {
		t.Error("the plugin was not upgraded after space was freed")
	}
}

func TestAFullDiskOfConfigurationsKeepsThem(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for _, name := range []string{"conf", "state"} {
		tn := newTestNode(t)
		tn.must(unix.Mkdir(tn.path("state"), 0o700))
		dir := tn.mountDisk(name, "64k")
		tn.put("conf/10-a.conflist", list("calico"))
		tn.put("conf/05-b.conf", plainBridge)
		before := tn.content("conf")
		free := filetest.Fill(t, dir)
		s := tn.reconcile()
		if s.Installed() || s.Problems[0].Reason != node.DiskFull {
			t.Errorf("%s: problems %v, want DiskFull first", name, s.Problems)
		}
		after := tn.content("conf")
		for file := range after {
			if strings.Contains(file, "ballast") {
				delete(after, file)
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: the configuration was changed (-before +after):\n%s", name, diff)
		}
		free()
		tn.mustBeInstalled(tn.reconcile())
		tn.uninstall()
		if diff := cmp.Diff(before, tn.content("conf")); diff != "" {
			t.Errorf("%s: after uninstallation the configuration differs (-before +after):\n%s", name, diff)
		}
	}
}

func TestReadOnlyDirectoriesAreReported(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for _, name := range []string{"conf", "bin", "state"} {
		tn := newTestNode(t)
		tn.must(unix.Mkdir(tn.path("state"), 0o700))
		tn.put("conf/10-a.conf", plainBridge)
		before := tn.content("conf")
		makeWritable := filetest.ReadOnly(t, tn.path(name))
		tn.wantBlocked(tn.reconcile(), node.ReadOnlyFileSystem, tn.path(name))
		if diff := cmp.Diff(before, tn.content("conf")); diff != "" {
			t.Errorf("%s: the configuration was changed (-before +after):\n%s", name, diff)
		}
		makeWritable()
		tn.mustBeInstalled(tn.reconcile())
		makeWritable = filetest.ReadOnly(t, tn.path("conf"))
		if _, err := tn.node().Uninstall(t.Context(), 0); err == nil || !tn.executableIs(pluginV1) {
			t.Errorf("%s: error %v; want one, and the executable that the configuration still names", name, err)
		}
		makeWritable()
		tn.uninstall()
		if diff := cmp.Diff(before, tn.content("conf")); diff != "" {
			t.Errorf("%s: after uninstallation the configuration differs (-before +after):\n%s", name, diff)
		}
	}
}

// TestFilesAreMaintainedWithoutNewJournalEntries checks that the existing journal entries are
// sufficient to maintain the node after the state directory has become read-only or full.
func TestFilesAreMaintainedWithoutNewJournalEntries(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for name, preventWrites := range map[string]func(tn *testNode) (restore func()){
		"read-only": func(tn *testNode) func() { return filetest.ReadOnly(t, tn.path("state")) },
		"full":      func(tn *testNode) func() { return filetest.Fill(t, tn.path("state")) },
	} {
		tn := newTestNode(t)
		tn.must(unix.Mkdir(tn.path("state"), 0o700))
		tn.mountDisk("state", "64k")
		tn.put("conf/10-a.conflist", list("calico"))
		before := tn.content("conf")
		tn.mustBeInstalled(tn.reconcile())
		restore := preventWrites(tn)
		s := tn.reconcile()
		tn.mustBeInstalled(s)
		if name == "read-only" && !slices.Contains(reasons(s), node.ReadOnlyFileSystem) {
			t.Errorf("with a read-only journal: problems %v, want ReadOnlyFileSystem", s.Problems)
		}
		tn.put("conf/10-a.conflist", list("calico")) // the content in the journal entry
		tn.mustBeInstalled(tn.reconcile())
		tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
		tn.put("conf/10-a.conflist", list("calico", "tuning")) // content that no journal entry contains
		tn.remove("bin/sluice-cni")
		s = tn.reconcile()
		tn.mustBeInstalled(s)
		if !slices.ContainsFunc(s.Problems, func(p node.Problem) bool {
			return strings.Contains(p.Message, "write the journal entry of 10-a.conflist")
		}) {
			t.Errorf("%s: after a correction without a journal entry: problems %v, want one that reports it",
				name, s.Problems)
		}
		tn.wantChains(map[string]string{"10-a.conflist": "calico tuning sluice-cni"})

		tn.put("conf/05-b.conflist", list("cilium-cni")) // a file without a journal entry
		if s := tn.reconcile(); s.Installed() {
			t.Errorf("%s: installed in a file without a journal entry, problems %v; want a blocking problem",
				name, s.Problems)
		}
		tn.wantChains(map[string]string{
			"05-b.conflist": "cilium-cni", "10-a.conflist": "calico tuning sluice-cni",
		})
		tn.remove("conf/05-b.conflist")

		tn.mustBeInstalled(tn.nodeOf(tn.upgraded()).Reconcile(t.Context()))
		if !tn.executableIs(pluginV2) || !tn.elementIs(elementV2) {
			t.Errorf("%s: the plugin was not upgraded", name)
		}
		if _, err := tn.node().Uninstall(t.Context(), 0); err == nil || !tn.executableIs(pluginV2) {
			t.Errorf("%s: Uninstall with a journal that cannot be changed: error %v, want one, and the "+
				"unchanged executable", name, err)
		}
		tn.wantChains(map[string]string{"10-a.conflist": "calico tuning"})
		restore()
		tn.mustBeInstalled(tn.reconcile())
		tn.uninstall()
		tn.put("conf/10-a.conflist", list("calico"))
		if diff := cmp.Diff(before, tn.content("conf")); diff != "" {
			t.Errorf("%s: after uninstallation the configuration differs (-before +after):\n%s", name, diff)
		}
	}
}

// TestWithoutAJournalEntryNoForeignFileIsEdited covers a file of Sluice that has become foreign:
// with only the old journal entry, uninstallation would remove the file.
func TestWithoutAJournalEntryNoForeignFileIsEdited(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	owned(&tn.settings)
	tn.mustBeInstalled(tn.reconcile())
	tn.settings.IstioOwnedCNIConfig = false
	tn.put("conf/02-istio-cni.conflist", list("bridge"))
	makeWritable := filetest.ReadOnly(t, tn.path("state"))
	if s := tn.reconcile(); s.Installed() {
		t.Errorf("installed without a journal entry; problems %v, want one that is blocking", s.Problems)
	}
	tn.wantChains(map[string]string{"02-istio-cni.conflist": "bridge", "10-a.conflist": "calico"})
	makeWritable()
	tn.mustBeInstalled(tn.reconcile())
	tn.uninstall()
	tn.wantChains(map[string]string{"02-istio-cni.conflist": "bridge", "10-a.conflist": "calico"})
}

// TestWithoutAJournalEntryNoPluginIsReplaced checks that a plugin to be replaced remains if its
// element cannot be written to the journal, because uninstallation could not restore the element.
func TestWithoutAJournalEntryNoPluginIsReplaced(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	tn.putExecutable("istio-cni", "istio's plugin")
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.put("conf/10-a.conflist", list("calico", "istio-cni"))
	makeWritable := filetest.ReadOnly(t, tn.path("state"))
	if s := tn.reconcile(); s.Installed() {
		t.Errorf("installed without a journal entry; problems %v, want one that is blocking", s.Problems)
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
	makeWritable()
	tn.mustBeInstalled(tn.reconcile())
	tn.uninstall()
	tn.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
}

// TestADirectoryThatWasReplacedUnderItsMountIsReported covers a directory of the node that is
// mounted into the agent's container: after the directory is removed and created again on the node,
// the mount refers to the removed one.
func TestADirectoryThatWasReplacedUnderItsMountIsReported(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	tn.must(unix.Mkdir(tn.path("host"), 0o755))
	tn.must(unix.Mount(tn.path("host"), tn.path("conf"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { tn.must(unix.Unmount(tn.path("conf"), unix.MNT_DETACH)) })
	tn.must(unix.Rmdir(tn.path("host")))
	tn.put("host/10-a.conflist", list("calico"))
	s := tn.reconcile()
	if s.Installed() || len(s.Problems) == 0 || s.Problems[0].Reason != node.DirectoryReplaced {
		t.Errorf("installed %t, problems %v; want DirectoryReplaced first", s.Installed(), s.Problems)
	}
}
