package node_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/plugin/file/filetest"
)

// callWhile calls check repeatedly while do runs.
func callWhile(check, do func()) {
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			check()
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

func TestMigrationNeverLeavesTheChainWithoutAPlugin(t *testing.T) {
	tn := newTestNode(t)
	tn.putExecutable("istio-cni", "istio's plugin")
	tn.put("conf/10-a.conflist", list("calico", "istio-cni"))
	before := tn.filesToRestore()
	callWhile(func() {
		types, err := typesInUse(tn)
		if err != nil || !slices.Contains(types, "istio-cni") &&
			!slices.Contains(types, "sluice-cni") {
			t.Errorf("the chain in use is %v, error %v; want istio-cni or sluice-cni in it", types, err)
		}
	}, func() {
		for range 8 {
			tn.mustBeInstalled(tn.reconcile())
			tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
			tn.uninstall()
			tn.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
		}
	})
	tn.wantRestored(before)
}

// TestFileNameOfIstioCNIIsTakenOver covers an istio-cni with the same file name for its copy of the
// primary configuration, or for its stand-alone configuration. When istio-cni is uninstalled, it
// removes the file, which Sluice then creates and owns.
func TestFileNameOfIstioCNIIsTakenOver(t *testing.T) {
	for name, row := range map[string]struct {
		settings         func(*node.Settings)
		file, istio      string
		installed, later string // plugins after the removal, and after the primary configuration changed
	}{
		"a copy": {
			owned, "02-istio-cni.conflist", list("calico", "istio-cni"), "calico sluice-cni",
			"cilium sluice-cni",
		},
		"a stand-alone configuration": {
			func(s *node.Settings) { s.Chained, s.CNIConfFileName = false, "istio-cni.conf" },
			"istio-cni.conf", `{"cniVersion":"0.3.1","name":"istio-cni","type":"istio-cni"}`,
			"plain sluice-cni", "plain sluice-cni",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			row.settings(&tn.settings)
			tn.putExecutable("istio-cni", "istio's plugin")
			tn.put("conf/10-a.conflist", list("calico"))
			tn.put("conf/"+row.file, row.istio)
			tn.reconcile()
			tn.remove("conf/" + row.file)
			tn.remove("bin/istio-cni")
			for range 2 {
				tn.mustBeInstalled(tn.reconcile())
			}
			tn.wantChains(map[string]string{"10-a.conflist": "calico", row.file: row.installed})
			tn.put("conf/10-a.conflist", list("cilium"))
			tn.mustBeInstalled(tn.reconcile())
			tn.wantChains(map[string]string{"10-a.conflist": "cilium", row.file: row.later})
			tn.uninstall()
			tn.wantChains(map[string]string{"10-a.conflist": "cilium"})
		})
	}
}

func TestPlainConfigurationIsConvertedWithoutAGap(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conf", plainBridge)
	before := tn.filesToRestore()
	callWhile(func() {
		// Runtimes read the names and then the files. If a file is removed in between, they fail
		// and read again, as this function does.
		types, err := typesInUse(tn)
		for tries := 0; err != nil && tries < 3; tries++ {
			types, err = typesInUse(tn)
		}
		if err != nil || types[0] != "bridge" {
			t.Errorf("the chain in use is %v, error %v; want bridge first", types, err)
		}
	}, func() {
		for range 8 {
			tn.mustBeInstalled(tn.reconcile())
			tn.uninstall()
		}
	})
	tn.wantRestored(before)
}

func TestUninstallRestoresTheReplacedPlugin(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(tn *testNode) // between installation and uninstallation
		want string
	}{
		"istio-cni is restored": {func(*testNode) {}, "calico istio-cni"},
		"istio-cni is restored in a list that others have rewritten": {func(tn *testNode) {
			tn.put("conf/10-a.conflist", list("calico", "tuning", "sluice-cni"))
		}, "calico tuning istio-cni"},
		"istio-cni is restored in a list from which others removed Sluice's element": {func(tn *testNode) {
			tn.put("conf/10-a.conflist", list("calico", "tuning"))
			tn.reconcile()
		}, "calico tuning istio-cni"},
		"istio-cni is not added if its element exists already": {func(tn *testNode) {
			tn.put("conf/10-a.conflist", list("istio-cni", "sluice-cni"))
		}, "istio-cni"},
		"istio-cni is not restored without its executable, because all pods would fail": {func(tn *testNode) {
			tn.remove("bin/istio-cni")
		}, "calico"},
		"istio-cni is not restored without its executable in a list that others have rewritten": {func(tn *testNode) {
			tn.remove("bin/istio-cni")
			tn.put("conf/10-a.conflist", list("calico", "x", "sluice-cni"))
		}, "calico x"},
		"istio-cni is not restored if its executable is the no-op": {func(tn *testNode) {
			tn.cacheResult("one", "istio-cni")
			tn.remove("bin/istio-cni")
			tn.reconcile()
		}, "calico"},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.putExecutable("istio-cni", "istio's plugin")
			tn.put("conf/10-a.conflist", list("calico", "istio-cni"))
			tn.mustBeInstalled(tn.reconcile())
			row.do(tn)
			tn.uninstall()
			tn.wantChains(map[string]string{"10-a.conflist": row.want})
		})
	}
}

// TestNoopServesTheSandboxesOfIstioCNI covers pods that istio-cni has redirected: the
// runtime removes them with istio-cni's plugin too, possibly after istio-cni was uninstalled.
func TestNoopServesTheSandboxesOfIstioCNI(t *testing.T) {
	tn := newTestNode(t)
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	reconcile := func() node.Status {
		now = now.Add(2 * time.Minute)
		s := n.Reconcile(t.Context())
		tn.mustBeInstalled(s)
		return s
	}
	tn.put("conf/10-a.conflist", list("calico", "istio-cni"))
	tn.putExecutable("istio-cni", "istio's plugin")
	tn.cacheResult("one", "calico", "istio-cni")
	if s := reconcile(); tn.read("bin/istio-cni") != "istio's plugin" {
		t.Fatalf("istio-cni's executable was replaced with the no-op executable; status %+v", s)
	}
	tn.remove("bin/istio-cni") // its chart is uninstalled
	if s := reconcile(); tn.read("bin/istio-cni") != noop {
		t.Errorf("the sandbox needs istio-cni, but there is no no-op executable; status %+v", s)
	}
	tn.put("image/noop", noop+"of the next version")
	if reconcile(); tn.read("bin/istio-cni") != noop+"of the next version" {
		t.Error("the no-op executable was not upgraded")
	}
	tn.putExecutable("istio-cni", "istio's plugin, again") // its chart is installed again
	if s := reconcile(); tn.read("bin/istio-cni") != "istio's plugin, again" {
		t.Errorf("the reinstalled executable was replaced with the no-op executable; status %+v", s)
	}
	tn.remove("bin/istio-cni")
	reconcile()
	tn.remove("results/net-one-eth0")
	reconcile()
	if _, err := os.Stat(tn.path("bin/istio-cni")); err == nil {
		t.Error("the no-op executable was not removed")
	}
}

// TestNoopIsRemovedAfterTheLossOfTheJournal checks that a no-op executable without a journal entry
// is not mistaken for istio-cni's executable.
func TestNoopIsRemovedAfterTheLossOfTheJournal(t *testing.T) {
	for name, remove := range map[string]func(tn *testNode){
		"by the agent":          func(tn *testNode) { tn.mustBeInstalled(tn.reconcile()) },
		"by the uninstallation": func(tn *testNode) { tn.uninstall() },
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.put("conf/10-a.conflist", list("calico"))
			tn.cacheResult("one", "calico", "istio-cni")
			if s := tn.reconcile(); tn.read("bin/istio-cni") != noop {
				t.Fatalf("there is no no-op executable of istio-cni; status %+v", s)
			}
			tn.put("state/journal.json", "{")
			tn.remove("results/net-one-eth0")
			remove(tn)
			if _, err := os.Stat(tn.path("bin/istio-cni")); err == nil {
				t.Error("the no-op executable was not removed")
			}
		})
	}
}

// TestUpgradeInstallsTheExecutableFirst checks that the configuration of the new version never
// exists with the executable of the old version.
func TestUpgradeInstallsTheExecutableFirst(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	for range 10 {
		tn.mustBeInstalled(tn.reconcile())
		callWhile(func() {
			conflist := tn.read("conf/10-a.conflist")
			executable := tn.read("bin/sluice-cni")
			if strings.Contains(conflist, "debug") && executable != pluginV2 {
				t.Errorf("the new configuration exists with an executable of %d bytes, want %d",
					len(executable), len(pluginV2))
			}
			if executable != pluginV1 && executable != pluginV2 {
				t.Errorf("an executable of %d bytes is neither version", len(executable))
			}
		}, func() { tn.mustBeInstalled(tn.nodeOf(tn.upgraded()).Reconcile(t.Context())) })
		if !tn.elementIs(elementV2) || !tn.executableIs(pluginV2) {
			t.Error("the executable or the element was not upgraded")
		}
	}
}

// TestRollbackChangesTheConfigurationFirst checks that the executable of the old version never
// exists with the configuration of the new version, which the old version may refuse.
func TestRollbackChangesTheConfigurationFirst(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	for range 10 {
		tn.mustBeInstalled(tn.nodeOf(tn.upgraded()).Reconcile(t.Context()))
		callWhile(func() {
			executable := tn.read("bin/sluice-cni")
			conflist := tn.read("conf/10-a.conflist")
			if strings.Contains(conflist, "debug") && executable == pluginV1 {
				t.Error("the old executable exists with the configuration of the new version")
			}
			if executable != pluginV1 && executable != pluginV2 {
				t.Errorf("an executable of %d bytes is neither version", len(executable))
			}
		}, func() {
			if s := tn.reconcile(); !s.Installed() || len(s.Changes) != 2 || len(s.Problems) > 0 {
				t.Errorf("the rollback changed %v with problems %v, want two changes, no problem", s.Changes,
					s.Problems)
			}
		})
		if !tn.elementIs(elementV1) || !tn.executableIs(pluginV1) {
			t.Error("the executable or the element was not rolled back")
		}
	}
}

// TestRollbackWithoutAWritableConfiguration checks that the new executable stays while the
// configuration of the new version cannot be changed.
func TestRollbackWithoutAWritableConfiguration(t *testing.T) {
	if !filetest.Private(t) {
		return
	}
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.mustBeInstalled(tn.nodeOf(tn.upgraded()).Reconcile(t.Context()))
	makeWritable := filetest.ReadOnly(t, tn.path("conf"))
	tn.wantBlocked(tn.reconcile(), node.ReadOnlyFileSystem, tn.path("conf"))
	if !tn.elementIs(elementV2) || !tn.executableIs(pluginV2) {
		t.Error("the executable or the element was changed")
	}
	makeWritable()
	tn.mustBeInstalled(tn.reconcile())
	if !tn.elementIs(elementV1) || !tn.executableIs(pluginV1) {
		t.Error("the executable or the element was not rolled back")
	}
}

// TestUnchangedNoopIsNotReadAgain checks that an unchanged no-op executable is recognized without
// reading it in each reconciliation.
func TestUnchangedNoopIsNotReadAgain(t *testing.T) {
	tn := newTestNode(t)
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	tn.put("conf/10-a.conflist", list("calico"))
	tn.cacheResult("one", "calico", "istio-cni")
	for range 2 {
		now = now.Add(2 * time.Minute)
		if s := n.Reconcile(t.Context()); tn.read("bin/istio-cni") != noop {
			t.Fatalf("there is no no-op executable of istio-cni; status %+v", s)
		}
	}
	reconcile := func() { n.Reconcile(t.Context()) }
	for _, path := range []string{"image/noop", "bin/istio-cni"} {
		if read := countOpens(t, tn.path(path), reconcile); read != 0 {
			t.Errorf("the unchanged file %s was opened %d times, want never", path, read)
		}
	}
	tn.put("image/noop", noop+"of the next version")
	if read := countOpens(t, tn.path("image/noop"), reconcile); read == 0 {
		t.Error("the no-op executable was not read after a change")
	}
}
