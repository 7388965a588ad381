package node_test

import (
	"context"
	"os"
	gort "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestUninstallRemovesOnlyTheEntryOfSluice(t *testing.T) {
	for name, row := range map[string]struct {
		settings func(s *node.Settings)
		before   map[string]string
		do       func(b *testNode) // after the installation
		want     map[string]string
	}{
		"a plugin was added to the list": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do: func(b *testNode) {
				b.put("conf/10-a.conflist", list("calico", "tuning", "sluice-cni"))
			},
			want: map[string]string{"10-a.conflist": "calico tuning"},
		},
		"Sluice's plugin was removed": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(b *testNode) { b.put("conf/10-a.conflist", list("calico", "tuning")) },
			want:   map[string]string{"10-a.conflist": "calico tuning"},
		},
		"the list was deleted": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(b *testNode) { b.remove("conf/10-a.conflist") },
			want:   map[string]string{},
		},
		"the list converted from a plain configuration was changed": {
			before: map[string]string{"conf/10-a.conf": plainBridge},
			do: func(b *testNode) {
				b.put("conf/10-a.conflist", list("bridge", "tuning", "sluice-cni"))
			},
			want: map[string]string{"10-a.conflist": "bridge tuning"},
		},
		"the list converted from a plain configuration was deleted": {
			before: map[string]string{"conf/10-a.conf": plainBridge},
			do:     func(b *testNode) { b.remove("conf/10-a.conflist") },
			want:   map[string]string{},
		},
		"the plain configuration was restored": {
			before: map[string]string{"conf/10-a.conf": plainBridge},
			do:     func(b *testNode) { b.put("conf/10-a.conf", `{"name":"new","type":"ptp"}`) },
			want:   map[string]string{"10-a.conf": "plain ptp"},
		},
		"the owned configuration was edited": {
			settings: owned,
			before:   map[string]string{"conf/10-a.conflist": list("calico")},
			do: func(b *testNode) {
				b.put("conf/02-istio-cni.conflist", list("calico", "tuning", "sluice-cni"))
			},
			want: map[string]string{"10-a.conflist": "calico"},
		},
		"the owned configuration became foreign": {
			settings: owned,
			before:   map[string]string{"conf/10-a.conflist": list("calico")},
			do: func(b *testNode) {
				b.put("conf/02-istio-cni.conflist", list("calico", "istio-cni"))
			},
			want: map[string]string{
				"02-istio-cni.conflist": "calico istio-cni", "10-a.conflist": "calico",
			},
		},
		"the journal was lost": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(b *testNode) { b.must(os.RemoveAll(b.path("state"))) },
			want:   map[string]string{"10-a.conflist": "calico"},
		},
		"the journal was damaged": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(b *testNode) { b.put("state/journal.json", "{") },
			want:   map[string]string{"10-a.conflist": "calico"},
		},
		"the directory was deleted": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(b *testNode) { b.must(os.RemoveAll(b.path("conf"))) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNode(t)
			b.putAll(row.before)
			if row.settings != nil {
				row.settings(&b.settings)
			}
			b.installed(b.reconcile())
			row.do(b)
			b.uninstall()
			if row.want != nil {
				b.wantChains(row.want)
			}
			if _, err := os.Stat(b.path("bin/sluice-cni")); err == nil {
				t.Error("the executable was not removed")
			}
			if second := b.uninstall(); len(second.Changed) != 0 {
				t.Errorf("the second uninstallation changed %v", second.Changed)
			}
		})
	}
}

func TestExecutableIsKeptWhileSandboxesNeedIt(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	before := b.everything()
	b.installed(b.reconcile())
	b.cache("one", "calico", "sluice-cni")
	b.cache("two", "calico", "sluice-cni")
	b.cache("old", "calico")
	b.put("results/junk", "{")
	report := b.uninstall()
	if len(report.Left) != 1 ||
		report.Left[0] != (node.Leftover{
			Path: b.path("bin/sluice-cni"), References: 2, Noop: true,
		}) {
		t.Errorf("left: %v", report.Left)
	}
	if !strings.Contains(report.Left[0].String(), b.path("bin/sluice-cni")) {
		t.Errorf("not named: %v", report.Left[0])
	}
	b.wantChains(map[string]string{"10-a.conflist": "calico"})
	if b.read("bin/sluice-cni") != noop {
		t.Error("the executable is not the no-op")
	}
	b.remove("results/net-one-eth0")
	if report := b.uninstall(); len(report.Left) != 1 || len(report.Changed) != 0 {
		t.Errorf("with one remaining sandbox: %+v", report)
	}
	b.remove("results/net-two-eth0")
	if report := b.uninstall(); len(report.Left) != 0 {
		t.Errorf("without sandboxes: %+v", report)
	}
	b.restored(before)
}

// TestExecutableIsKeptWhileAForeignConfigurationNamesIt covers the thin form of Multus, which
// copies the network's configuration with Sluice's element into its own.
func TestExecutableIsKeptWhileAForeignConfigurationNamesIt(t *testing.T) {
	b := newTestNode(t)
	copying := func(plugins ...string) string {
		return `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","delegates":[` +
			list(plugins...) + `]}`
	}
	b.putAll(map[string]string{
		"conf/00-multus.conf": copying("calico"), "conf/10-a.conflist": list("calico"),
	})
	b.settings.CNIConfFileName = "10-a.conflist"
	before := b.everything()
	b.reconcile()
	b.put("conf/00-multus.conf", copying("calico", "sluice-cni"))
	b.installed(b.reconcile())
	for range 2 {
		report := b.uninstall()
		want := node.Leftover{
			Path: b.path("bin/sluice-cni"), NamedBy: b.path("conf/00-multus.conf"), Noop: true,
		}
		if len(report.Left) != 1 || report.Left[0] != want {
			t.Fatalf("left: %+v", report.Left)
		}
		message := report.Left[0].String()
		if !contains(message, b.path("conf/00-multus.conf")+" names it") ||
			contains(message, "sandboxes") || contains(message, "own pods") {
			t.Errorf("reported: %s", message)
		}
		if b.read("bin/sluice-cni") != noop {
			t.Error("the executable is not the no-op")
		}
		b.wantChains(map[string]string{"00-multus.conf": "plain multus", "10-a.conflist": "calico"})
	}
	b.put("conf/00-multus.conf", copying("calico")) // Multus has been restarted
	if report := b.uninstall(); len(report.Left) != 0 {
		t.Errorf("without a configuration that names it: %+v", report)
	}
	b.restored(before)
}

func TestWithoutANoopThePluginIsKept(t *testing.T) {
	b := newTestNode(t)
	b.settings.Noop = ""
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	b.cache("one", "calico", "sluice-cni")
	report := b.uninstall()
	if len(report.Left) != 1 || report.Left[0].Noop || b.read("bin/sluice-cni") != pluginV1 {
		t.Errorf("%+v", report)
	}
}

func TestInstalledAgainOverANoop(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	before := b.everything()
	b.installed(b.reconcile())
	b.cache("one", "calico", "sluice-cni")
	b.uninstall()
	b.installed(b.reconcile())
	if b.read("bin/sluice-cni") != pluginV1 {
		t.Error("the plugin was not installed again")
	}
	b.remove("results/net-one-eth0")
	b.uninstall()
	b.restored(before)
}

func TestUninstallWaitsForTheLastSandbox(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	before := b.everything()
	b.installed(b.reconcile())
	b.cache("one", "calico", "sluice-cni")
	var runtime sync.WaitGroup
	runtime.Go(func() {
		for contains(b.read("conf/10-a.conflist"), "sluice-cni") { // the configuration is restored first
			if !contains(b.read("bin/sluice-cni"), "plugin") {
				t.Error("the executable was removed before the configuration")
			}
		}
		b.remove("results/net-one-eth0")
	})
	report, err := b.node().Uninstall(t.Context(), time.Minute)
	runtime.Wait()
	if err != nil || len(report.Left) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	b.restored(before)
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	b.cache("one", "calico", "sluice-cni")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var runtime sync.WaitGroup
	runtime.Go(func() {
		// the wait starts only after that
		for contains(b.read("conf/10-a.conflist"), "sluice-cni") {
			gort.Gosched()
		}
		cancel()
	})
	report, err := b.node().Uninstall(ctx, time.Hour)
	runtime.Wait()
	b.wantChains(map[string]string{"10-a.conflist": "calico"})
	if err != nil || len(report.Left) != 1 || b.read("bin/sluice-cni") != noop {
		t.Errorf("%+v, %v", report, err)
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestSandboxThatIsBeingCreatedKeepsItsExecutable covers a sandbox that is being created when the
// configuration changes: its result is cached only afterwards.
func TestSandboxThatIsBeingCreatedKeepsItsExecutable(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	var runtime sync.WaitGroup
	runtime.Go(func() {
		for contains(b.read("conf/10-a.conflist"), "sluice-cni") {
			gort.Gosched()
		}
		<-time.After(50 * time.Millisecond) // the sandbox is being created
		if b.read("bin/sluice-cni") != pluginV1 {
			t.Error("the executable was removed")
		}
		b.cache("late", "calico", "sluice-cni")
	})
	report, err := b.node().Uninstall(t.Context(), 3*time.Second)
	runtime.Wait()
	if err != nil || len(report.Left) != 1 || b.read("bin/sluice-cni") != noop {
		t.Errorf("%+v, %v", report, err)
	}
}
