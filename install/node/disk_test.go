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

// onDisk makes the testNode's directory of that name a separate file system.
func (b *testNode) onDisk(name, size string) (dir string) {
	b.t.Helper()
	dir = filetest.Disk(b.t.(*testing.T), size)
	b.must(unix.Mount(dir, b.path(name), "", unix.MS_BIND, ""))
	b.t.Cleanup(func() {
		if err := unix.Unmount(b.path(name), unix.MNT_DETACH); err != nil {
			b.t.Error(err)
		}
	})
	return dir
}

func (b *testNode) blocked(s node.Status, reason node.Reason, text string) {
	b.t.Helper()
	if s.Installed() || len(s.Problems) != 1 || s.Problems[0].Reason != reason ||
		!strings.Contains(s.Problems[0].Message, text) {
		b.t.Errorf("installed %t, %v; want %s with %q", s.Installed(), s.Problems, reason, text)
	}
}

func TestAFullDiskOfExecutables(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	dir := b.onDisk("bin", "256k")
	free := filetest.Fill(t, dir)
	b.blocked(b.reconcile(), node.DiskFull, b.path("bin/sluice-cni"))
	// a missing plugin must not be in the configuration
	b.wantChains(map[string]string{"10-a.conflist": "calico"})
	free()
	b.installed(b.reconcile())

	free = filetest.Fill(t, dir)
	upgrade := func() node.Status {
		return b.nodeOf(b.upgraded(), node.Options{}).Reconcile(t.Context())
	}
	s := upgrade()
	if !s.Installed() || len(s.Problems) != 1 || s.Problems[0].Reason != node.DiskFull {
		t.Errorf("%v", s.Problems)
	}
	if !b.executableIs(pluginV1) || !b.elementIs(elementV1) {
		t.Error("the old version was changed")
	}
	// a conflicting writer while the disk is full
	b.put("conf/10-a.conflist", list("calico", "tuning"))
	if s := upgrade(); !s.Installed() {
		t.Errorf("%v", s.Problems)
	}
	b.wantChains(map[string]string{"10-a.conflist": "calico tuning sluice-cni"})
	free()
	b.installed(upgrade())
	if !b.executableIs(pluginV2) || !b.elementIs(elementV2) {
		t.Error("not upgraded once there was space")
	}
}

func TestAFullDiskOfConfigurations(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for _, name := range []string{"conf", "state"} {
		b := newTestNode(t)
		b.must(unix.Mkdir(b.path("state"), 0o700))
		dir := b.onDisk(name, "64k")
		b.put("conf/10-a.conflist", list("calico"))
		b.put("conf/05-b.conf", plainBridge)
		before := b.content("conf")
		free := filetest.Fill(t, dir)
		s := b.reconcile()
		if s.Installed() || s.Problems[0].Reason != node.DiskFull {
			t.Errorf("%s: %v", name, s.Problems)
		}
		after := b.content("conf")
		for file := range after {
			if strings.Contains(file, "ballast") {
				delete(after, file)
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: the configuration was changed (-before +after):\n%s", name, diff)
		}
		free()
		b.installed(b.reconcile())
		b.uninstall()
		if diff := cmp.Diff(before, b.content("conf")); diff != "" {
			t.Errorf("%s: not restored (-before +after):\n%s", name, diff)
		}
	}
}

func TestReadOnlyDirectories(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for _, name := range []string{"conf", "bin", "state"} {
		b := newTestNode(t)
		b.must(unix.Mkdir(b.path("state"), 0o700))
		b.put("conf/10-a.conf", plainBridge)
		before := b.content("conf")
		writable := filetest.ReadOnly(t, b.path(name))
		b.blocked(b.reconcile(), node.ReadOnly, b.path(name))
		if diff := cmp.Diff(before, b.content("conf")); diff != "" {
			t.Errorf("%s: the configuration was changed (-before +after):\n%s", name, diff)
		}
		writable()
		b.installed(b.reconcile())
		writable = filetest.ReadOnly(t, b.path("conf"))
		if _, err := b.node().Uninstall(t.Context(), 0); err == nil || !b.executableIs(pluginV1) {
			t.Errorf("%s: %v; the executable must stay while the configuration names it", name, err)
		}
		writable()
		b.uninstall()
		if diff := cmp.Diff(before, b.content("conf")); diff != "" {
			t.Errorf("%s: not restored (-before +after):\n%s", name, diff)
		}
	}
}

// TestWithoutARecordTheFilesAreMaintained checks that the existing records are sufficient to
// maintain the node after the state directory has become read-only or full.
func TestWithoutARecordTheFilesAreMaintained(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	for name, spoil := range map[string]func(b *testNode) (heal func()){
		"read-only": func(b *testNode) func() { return filetest.ReadOnly(t, b.path("state")) },
		"full":      func(b *testNode) func() { return filetest.Fill(t, b.path("state")) },
	} {
		b := newTestNode(t)
		b.must(unix.Mkdir(b.path("state"), 0o700))
		b.onDisk("state", "64k")
		b.put("conf/10-a.conflist", list("calico"))
		before := b.content("conf")
		b.installed(b.reconcile())
		heal := spoil(b)
		s := b.reconcile()
		b.installed(s)
		if name == "read-only" && !slices.Contains(reasons(s), node.ReadOnly) {
			t.Errorf("the failure to record the next change is not reported: %v", s.Problems)
		}
		b.put("conf/10-a.conflist", list("calico")) // the recorded content
		b.installed(b.reconcile())
		b.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
		b.put("conf/10-a.conflist", list("calico", "tuning")) // content without a record
		b.remove("bin/sluice-cni")
		s = b.reconcile()
		b.installed(s)
		if !slices.ContainsFunc(s.Problems, func(p node.Problem) bool {
			return strings.Contains(p.Message, "write the journal entry of 10-a.conflist")
		}) {
			t.Errorf("%s: the correction without a record is not reported: %v", name, s.Problems)
		}
		b.wantChains(map[string]string{"10-a.conflist": "calico tuning sluice-cni"})

		b.put("conf/05-b.conflist", list("cilium-cni")) // a file without a record
		if s := b.reconcile(); s.Installed() {
			t.Errorf("%s: installed: %v", name, s.Problems)
		}
		b.wantChains(map[string]string{
			"05-b.conflist": "cilium-cni", "10-a.conflist": "calico tuning sluice-cni",
		})
		b.remove("conf/05-b.conflist")

		b.installed(b.nodeOf(b.upgraded(), node.Options{}).Reconcile(t.Context()))
		if !b.executableIs(pluginV2) || !b.elementIs(elementV2) {
			t.Errorf("%s: not upgraded", name)
		}
		if _, err := b.node().Uninstall(t.Context(), 0); err == nil || !b.executableIs(pluginV2) {
			t.Errorf("%s: uninstalled without a record of it: %v", name, err)
		}
		b.wantChains(map[string]string{"10-a.conflist": "calico tuning"})
		heal()
		b.installed(b.reconcile())
		b.uninstall()
		b.put("conf/10-a.conflist", list("calico"))
		if diff := cmp.Diff(before, b.content("conf")); diff != "" {
			t.Errorf("%s: not restored (-before +after):\n%s", name, diff)
		}
	}
}

// TestWithoutARecordNoFileIsOwned covers a file of Sluice that has become foreign: with only the
// old record, uninstallation would remove it.
func TestWithoutARecordNoFileIsOwned(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	owned(&b.settings)
	b.installed(b.reconcile())
	b.settings.IstioOwnedCNIConfig = false
	b.put("conf/02-istio-cni.conflist", list("bridge"))
	writable := filetest.ReadOnly(t, b.path("state"))
	if s := b.reconcile(); s.Installed() {
		t.Errorf("installed: %v", s.Problems)
	}
	b.wantChains(map[string]string{"02-istio-cni.conflist": "bridge", "10-a.conflist": "calico"})
	writable()
	b.installed(b.reconcile())
	b.uninstall()
	b.wantChains(map[string]string{"02-istio-cni.conflist": "bridge", "10-a.conflist": "calico"})
}

// TestWithoutARecordNoPluginIsReplaced checks that a plugin to be replaced remains if it cannot be
// recorded, so that it can be restored.
func TestWithoutARecordNoPluginIsReplaced(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	b := newTestNode(t)
	b.executable("istio-cni", "istio's plugin")
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	b.put("conf/10-a.conflist", list("calico", "istio-cni"))
	writable := filetest.ReadOnly(t, b.path("state"))
	if s := b.reconcile(); s.Installed() {
		t.Errorf("installed: %v", s.Problems)
	}
	b.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
	writable()
	b.installed(b.reconcile())
	b.uninstall()
	b.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
}

// TestADirectoryThatWasReplacedUnderItsMount covers a directory of the node that is mounted into
// the agent's container: after it is removed and created again on the node, the mount refers to the
// old one.
func TestADirectoryThatWasReplacedUnderItsMount(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	b := newTestNode(t)
	b.must(unix.Mkdir(b.path("host"), 0o755))
	b.must(unix.Mount(b.path("host"), b.path("conf"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { b.must(unix.Unmount(b.path("conf"), unix.MNT_DETACH)) })
	b.must(unix.Rmdir(b.path("host")))
	b.put("host/10-a.conflist", list("calico"))
	s := b.reconcile()
	if s.Installed() || len(s.Problems) == 0 || s.Problems[0].Reason != node.DirectoryGone {
		t.Errorf("%v", s.Problems)
	}
}
