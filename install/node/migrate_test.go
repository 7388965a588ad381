package node_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/node"
)

// watched calls look repeatedly while do runs.
func watched(look, do func()) {
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			look()
			select {
			case <-done:
				return
			default:
			}
		}
	})
	do()
	close(done)
	watcher.Wait()
}

func TestMigrationHasNoMomentWithNeither(t *testing.T) {
	b := newTestNode(t)
	b.executable("istio-cni", "istio's plugin")
	b.put("conf/10-a.conflist", list("calico", "istio-cni"))
	before := b.everything()
	watched(func() {
		types, err := inUse(b)
		if err != nil || !slices.Contains(types, "istio-cni") &&
			!slices.Contains(types, "sluice-cni") {
			t.Errorf("%v, %v", types, err)
		}
	}, func() {
		for range 8 {
			b.installed(b.reconcile())
			b.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
			b.uninstall()
			b.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
		}
	})
	b.restored(before)
}

func TestPlainConfigurationIsConvertedWithoutAGap(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conf", plainBridge)
	before := b.everything()
	watched(func() {
		// Read the names and then the files, like runtimes: a file that is removed in between is an
		// error, and they read again. This function does the same.
		types, err := inUse(b)
		for tries := 0; err != nil && tries < 3; tries++ {
			types, err = inUse(b)
		}
		if err != nil || types[0] != "bridge" {
			t.Errorf("%v, %v", types, err)
		}
	}, func() {
		for range 8 {
			b.installed(b.reconcile())
			b.uninstall()
		}
	})
	b.restored(before)
}

func TestReleasingMemory(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(b *testNode) // between installation and uninstallation
		want string
	}{
		"istio-cni is restored": {func(*testNode) {}, "calico istio-cni"},
		"in a list that others have rewritten": {func(b *testNode) {
			b.put("conf/10-a.conflist", list("calico", "tuning", "sluice-cni"))
		}, "calico tuning istio-cni"},
		"where others replaced Sluice's entry": {func(b *testNode) {
			b.put("conf/10-a.conflist", list("calico", "tuning"))
			b.reconcile()
		}, "calico tuning istio-cni"},
		"not if it exists already": {func(b *testNode) {
			b.put("conf/10-a.conflist", list("istio-cni", "sluice-cni"))
		}, "istio-cni"},
		"not without its executable, because all pods would fail": {func(b *testNode) {
			b.remove("bin/istio-cni")
		}, "calico"},
		"not without its executable in a list that others have rewritten": {func(b *testNode) {
			b.remove("bin/istio-cni")
			b.put("conf/10-a.conflist", list("calico", "x", "sluice-cni"))
		}, "calico x"},
		"not if its executable is the no-op": {func(b *testNode) {
			b.cache("one", "istio-cni")
			b.remove("bin/istio-cni")
			b.reconcile()
		}, "calico"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNode(t)
			b.executable("istio-cni", "istio's plugin")
			b.put("conf/10-a.conflist", list("calico", "istio-cni"))
			b.installed(b.reconcile())
			row.do(b)
			b.uninstall()
			b.wantChains(map[string]string{"10-a.conflist": row.want})
		})
	}
}

// TestSandboxesOfIstioCNIAfterItsUninstallation covers pods that istio-cni has redirected: they
// are removed with its plugin too, possibly after istio-cni was uninstalled.
func TestSandboxesOfIstioCNIAfterItsUninstallation(t *testing.T) {
	b := newTestNode(t)
	now := time.Unix(1_000_000, 0)
	n := b.nodeOf(b.settings, node.Options{Now: func() time.Time { return now }})
	pass := func() node.Status {
		now = now.Add(2 * time.Minute)
		s := n.Reconcile(t.Context())
		b.installed(s)
		return s
	}
	b.put("conf/10-a.conflist", list("calico", "istio-cni"))
	b.executable("istio-cni", "istio's plugin")
	b.cache("one", "calico", "istio-cni")
	if s := pass(); len(s.Noops) != 0 || b.read("bin/istio-cni") != "istio's plugin" {
		t.Fatalf("%+v", s)
	}
	b.remove("bin/istio-cni") // its chart is uninstalled
	if s := pass(); !slices.Equal(s.Noops, []string{"istio-cni"}) ||
		b.read("bin/istio-cni") != noop {
		t.Errorf("no executable for the sandbox: %+v", s)
	}
	b.put("image/noop", noop+"of the next version")
	if pass(); b.read("bin/istio-cni") != noop+"of the next version" {
		t.Error("the no-op executable was not upgraded")
	}
	b.executable("istio-cni", "istio's plugin, again") // its chart is installed again
	if s := pass(); len(s.Noops) != 0 || b.read("bin/istio-cni") != "istio's plugin, again" {
		t.Errorf("%+v", s)
	}
	b.remove("bin/istio-cni")
	pass()
	b.remove("results/net-one-eth0")
	if s := pass(); len(s.Noops) != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(b.path("bin/istio-cni")); err == nil {
		t.Error("the no-op executable was not removed")
	}
}

// TestUpgradeBringsTheExecutableFirst checks that the configuration of the new version never exists
// with the executable of the old one.
func TestUpgradeBringsTheExecutableFirst(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	for range 10 {
		b.installed(b.reconcile())
		watched(func() {
			element := b.read("conf/10-a.conflist")
			executable := b.read("bin/sluice-cni")
			if strings.Contains(element, "debug") && executable != pluginV2 {
				t.Errorf("the new configuration with an executable of %d bytes", len(executable))
			}
			if executable != pluginV1 && executable != pluginV2 {
				t.Errorf("an executable of %d bytes", len(executable))
			}
		}, func() { b.installed(b.nodeOf(b.upgraded(), node.Options{}).Reconcile(t.Context())) })
		if !b.elementIs(elementV2) || !b.executableIs(pluginV2) {
			t.Error("not upgraded")
		}
	}
}

// TestExecutablesAreReadOnce checks that unchanged executables are recognized by their status, and
// not read in each reconciliation.
func TestExecutablesAreReadOnce(t *testing.T) {
	b := newTestNode(t)
	now := time.Unix(1_000_000, 0)
	n := b.nodeOf(b.settings, node.Options{Now: func() time.Time { return now }})
	b.put("conf/10-a.conflist", list("calico"))
	b.cache("one", "calico", "istio-cni")
	for range 2 {
		now = now.Add(2 * time.Minute)
		if s := n.Reconcile(t.Context()); !slices.Equal(s.Noops, []string{"istio-cni"}) {
			t.Fatalf("%+v", s)
		}
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	for _, dir := range []string{"image", "bin"} {
		if _, err := unix.InotifyAddWatch(watch, b.path(dir),
			unix.IN_OPEN|unix.IN_ACCESS); err != nil {
			t.Fatal(err)
		}
	}
	events := make([]byte, 4096)
	read := func() bool {
		n.Reconcile(t.Context())
		length, _ := unix.Read(watch, events)
		return strings.Contains(string(events[:max(length, 0)]), "noop")
	}
	if read() {
		t.Error("the no-op executable is read again")
	}
	b.put("image/noop", noop+"of the next version")
	if !read() {
		t.Error("a changed executable is not read")
	}
}
