package node_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/node"
)

func TestUninstallRemovesOnlyTheElementOfSluice(t *testing.T) {
	for name, row := range map[string]struct {
		settings func(s *node.Settings)
		before   map[string]string
		do       func(tn *testNode) // after the installation
		want     map[string]string
	}{
		"a plugin was added to the list": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do: func(tn *testNode) {
				tn.put("conf/10-a.conflist", list("calico", "tuning", "sluice-cni"))
			},
			want: map[string]string{"10-a.conflist": "calico tuning"},
		},
		"Sluice's plugin was removed": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(tn *testNode) { tn.put("conf/10-a.conflist", list("calico", "tuning")) },
			want:   map[string]string{"10-a.conflist": "calico tuning"},
		},
		"the list was replaced with invalid text": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(tn *testNode) { tn.put("conf/10-a.conflist", "{") },
			want:   map[string]string{"10-a.conflist": "not valid"},
		},
		"the list was deleted": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(tn *testNode) { tn.remove("conf/10-a.conflist") },
			want:   map[string]string{},
		},
		"the list converted from a plain configuration was changed": {
			before: map[string]string{"conf/10-a.conf": plainBridge},
			do: func(tn *testNode) {
				tn.put("conf/10-a.conflist", list("bridge", "tuning", "sluice-cni"))
			},
			want: map[string]string{"10-a.conflist": "bridge tuning"},
		},
		"the list converted from a plain configuration was deleted": {
			before: map[string]string{"conf/10-a.conf": plainBridge},
			do:     func(tn *testNode) { tn.remove("conf/10-a.conflist") },
			want:   map[string]string{},
		},
		"the plain configuration was restored": {
			before: map[string]string{"conf/10-a.conf": plainBridge},
			do:     func(tn *testNode) { tn.put("conf/10-a.conf", `{"name":"new","type":"ptp"}`) },
			want:   map[string]string{"10-a.conf": "plain ptp"},
		},
		"the owned configuration was edited": {
			settings: owned,
			before:   map[string]string{"conf/10-a.conflist": list("calico")},
			do: func(tn *testNode) {
				tn.put("conf/02-istio-cni.conflist", list("calico", "tuning", "sluice-cni"))
			},
			want: map[string]string{"10-a.conflist": "calico"},
		},
		"a foreign list with the name of the owned configuration was edited": {
			before: map[string]string{"conf/02-istio-cni.conflist": list("calico")},
			do: func(tn *testNode) {
				tn.put("conf/02-istio-cni.conflist", list("calico", "tuning", "sluice-cni"))
			},
			want: map[string]string{"02-istio-cni.conflist": "calico tuning"},
		},
		"the owned configuration became foreign": {
			settings: owned,
			before:   map[string]string{"conf/10-a.conflist": list("calico")},
			do: func(tn *testNode) {
				tn.put("conf/02-istio-cni.conflist", list("calico", "istio-cni"))
			},
			want: map[string]string{
				"02-istio-cni.conflist": "calico istio-cni", "10-a.conflist": "calico",
			},
		},
		"the journal was lost": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(tn *testNode) { tn.must(os.RemoveAll(tn.path("state"))) },
			want:   map[string]string{"10-a.conflist": "calico"},
		},
		"the journal was damaged": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(tn *testNode) { tn.put("state/journal.json", "{") },
			want:   map[string]string{"10-a.conflist": "calico"},
		},
		"the directory was deleted": {
			before: map[string]string{"conf/10-a.conflist": list("calico")},
			do:     func(tn *testNode) { tn.must(os.RemoveAll(tn.path("conf"))) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.putAll(row.before)
			if row.settings != nil {
				row.settings(&tn.settings)
			}
			tn.mustBeInstalled(tn.reconcile())
			row.do(tn)
			tn.uninstall()
			if row.want != nil {
				tn.wantChains(row.want)
			}
			if _, err := os.Stat(tn.path("bin/sluice-cni")); err == nil {
				t.Error("the executable was not removed")
			}
			if _, err := os.Stat(tn.path("state")); !os.IsNotExist(err) {
				t.Errorf("the state directory was not removed: %q", tn.content("state"))
			}
			if second := tn.uninstall(); len(second.Changed) != 0 {
				t.Errorf("the second uninstallation changed %v, want no change", second.Changed)
			}
		})
	}
}

func TestExecutableIsKeptWhileSandboxesNeedIt(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResult("one", "calico", "sluice-cni")
	tn.cacheResult("two", "calico", "sluice-cni")
	tn.cacheResult("old", "calico")
	tn.put("results/junk", "{}")
	report := tn.uninstall()
	if len(report.Left) != 1 ||
		report.Left[0] != (node.Leftover{
			Path: tn.path("bin/sluice-cni"), References: 2, Noop: true,
		}) {
		t.Fatalf("left %v, want the plugin as a no-op with 2 references", report.Left)
	}
	if !strings.Contains(report.Left[0].String(), tn.path("bin/sluice-cni")) {
		t.Errorf("message %q, want the path of the executable", report.Left[0])
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico"})
	if tn.read("bin/sluice-cni") != noop {
		t.Error("the executable was not replaced with the no-op executable")
	}
	tn.remove("results/net-one-eth0")
	if report := tn.uninstall(); len(report.Left) != 1 || len(report.Changed) != 0 {
		t.Errorf("with one remaining sandbox: %+v, want the same leftover and no change", report)
	}
	tn.remove("results/net-two-eth0")
	if report := tn.uninstall(); len(report.Left) != 0 {
		t.Errorf("without sandboxes: %+v, want no leftover", report)
	}
	tn.wantRestored(before)
}

// TestExecutableIsKeptWhileAForeignConfigurationNamesIt covers the thin plugin of Multus, whose
// configuration contains a copy of the network's configuration with Sluice's element.
func TestExecutableIsKeptWhileAForeignConfigurationNamesIt(t *testing.T) {
	tn := newTestNode(t)
	copying := func(plugins ...string) string {
		return `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","delegates":[` +
			list(plugins...) + `]}`
	}
	tn.putAll(map[string]string{
		"conf/00-multus.conf": copying("calico"), "conf/10-a.conflist": list("calico"),
	})
	tn.settings.CNIConfFileName = "10-a.conflist"
	before := tn.filesToRestore()
	tn.reconcile()
	tn.put("conf/00-multus.conf", copying("calico", "sluice-cni"))
	tn.mustBeInstalled(tn.reconcile())
	for range 2 {
		report := tn.uninstall()
		want := node.Leftover{
			Path: tn.path("bin/sluice-cni"), NamedBy: tn.path("conf/00-multus.conf"), Noop: true,
		}
		if len(report.Left) != 1 || report.Left[0] != want {
			t.Fatalf("left %+v, want %+v", report.Left, want)
		}
		message := report.Left[0].String()
		if !strings.Contains(message, tn.path("conf/00-multus.conf")+" names it") ||
			strings.Contains(message, "sandboxes") || strings.Contains(message, "own pods") {
			t.Errorf("message %q, want only the configuration as the reason", message)
		}
		if tn.read("bin/sluice-cni") != noop {
			t.Error("the executable was not replaced with the no-op executable")
		}
		tn.wantChains(map[string]string{"00-multus.conf": "plain multus", "10-a.conflist": "calico"})
	}
	tn.put("conf/00-multus.conf", copying("calico")) // Multus has been restarted
	if report := tn.uninstall(); len(report.Left) != 0 {
		t.Errorf("without a configuration that names the plugin: %+v, want no leftover", report)
	}
	tn.wantRestored(before)
}

func TestWithoutANoopThePluginIsKept(t *testing.T) {
	tn := newTestNode(t)
	tn.settings.Noop = ""
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResult("one", "calico", "sluice-cni")
	report := tn.uninstall()
	if len(report.Left) != 1 || report.Left[0].Noop || tn.read("bin/sluice-cni") != pluginV1 {
		t.Errorf("the report is %+v, want the unchanged plugin as the leftover", report)
	}
}

// TestExecutableIsKeptIfTheCachedResultsCannotBeRead checks that the report says that the number of
// sandboxes is unknown.
func TestExecutableIsKeptIfTheCachedResultsCannotBeRead(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResult("one", "calico", "sluice-cni")
	resultDirs := tn.settings.ResultDirs
	tn.put("unreadable", "")
	tn.settings.ResultDirs = append(slices.Clone(resultDirs), tn.path("unreadable"))
	report := tn.uninstall()
	if len(report.Left) != 1 || report.Left[0].References != 0 || !report.Left[0].Noop ||
		!errors.Is(report.Left[0].ReferencesErr, syscall.ENOTDIR) {
		t.Fatalf("left %+v, want a no-op with ReferencesErr ENOTDIR", report.Left)
	}
	if message := report.Left[0].String(); !strings.Contains(message, "unknown") ||
		!strings.Contains(message, tn.path("unreadable")) || strings.Contains(message, "1 sandbox ") {
		t.Errorf("message %q, want the reason why it is unknown whether sandboxes need the executable", message)
	}
	tn.remove("unreadable")
	tn.remove("results/net-one-eth0")
	tn.settings.ResultDirs = resultDirs
	if report := tn.uninstall(); len(report.Left) != 0 {
		t.Errorf("without sandboxes: %+v, want no leftover", report)
	}
	tn.wantRestored(before)
}

// TestExecutableIsKeptIfACachedResultIsIncomplete covers a result that the runtime is writing when
// the time for waiting has elapsed.
func TestExecutableIsKeptIfACachedResultIsIncomplete(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.put("results/net-one-eth0", "")
	report := tn.uninstall()
	if len(report.Left) != 1 || !report.Left[0].Noop || report.Left[0].ReferencesErr == nil {
		t.Errorf("left %+v, want a no-op with ReferencesErr", report.Left)
	}
}

// TestNoopIsWrittenAlthoughSomeResultsCannotBeRead checks that the cached results that can be read
// are sufficient to write the no-op executable, but not to remove it.
func TestNoopIsWrittenAlthoughSomeResultsCannotBeRead(t *testing.T) {
	tn := newTestNode(t)
	tn.settings.ReplacedTypes = []string{"istio-cni"}
	tn.put("conf/10-a.conflist", list("calico"))
	tn.cacheResult("one", "calico", "istio-cni")
	tn.put("unreadable", "")
	tn.settings.ResultDirs = append(slices.Clone(tn.settings.ResultDirs), tn.path("unreadable"))
	for range 2 {
		status := tn.reconcile()
		tn.mustBeInstalled(status)
		if len(status.Problems) == 0 {
			t.Error("no problem, want one for the results that cannot be read")
		}
		if tn.read("bin/istio-cni") != noop {
			t.Fatal("the no-op executable is missing")
		}
		tn.put("results/net-one-eth0", "{}")
	}
}

// TestExecutableIsKeptIfAConfigurationCannotBeRead covers a link that the runtime can follow, but
// the agent's container cannot: the target still contains the plugin.
func TestExecutableIsKeptIfAConfigurationCannotBeRead(t *testing.T) {
	tn := newTestNode(t)
	addLink(tn)
	before := tn.filesToRestore()
	tn.mustBeInstalled(tn.reconcile())
	tn.must(os.Rename(tn.path("elsewhere"), tn.path("invisible")))
	for range 2 {
		report := tn.uninstall()
		if len(report.Left) != 1 || !report.Left[0].Noop || report.Left[0].NamedBy != "" ||
			!errors.Is(report.Left[0].UnreadErr, fs.ErrNotExist) || tn.read("bin/sluice-cni") != noop {
			t.Fatalf("left %+v, want a no-op with UnreadErr", report.Left)
		}
		if message := report.Left[0].String(); !strings.Contains(message, "unknown whether a configuration names it (") ||
			!strings.Contains(message, tn.path("conf/05-link.conflist")) {
			t.Errorf("message %q, want the configuration that cannot be read", message)
		}
	}
	tn.must(os.Rename(tn.path("invisible"), tn.path("elsewhere")))
	if report := tn.uninstall(); len(report.Left) != 0 {
		t.Errorf("with a readable configuration: %+v, want no leftover", report)
	}
	tn.wantRestored(before)
	if got := tn.read("elsewhere/calico"); got != list("calico") {
		t.Errorf("the configuration is %s, want its original bytes", got)
	}
}

// TestFilesThatAnInvalidConfigurationMayNameAreKept covers a configuration with the plugin that is
// invalid during the uninstallation, because of a typing error or a program that is writing it: it
// names the plugin again as soon as it is valid. Its journal entry is needed then.
func TestFilesThatAnInvalidConfigurationMayNameAreKept(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"a comma too many":  func(text string) string { return strings.Replace(text, "\n  ]", ",\n  ]", 1) },
		"text after it":     func(text string) string { return text + "," },
		"an incomplete end": func(text string) string { return strings.TrimSuffix(text, "}\n") },
		"a list without a name": func(text string) string {
			return strings.Replace(text, `"name"`, `"nam"`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.settings.ReplacedTypes = []string{"istio-cni"}
			tn.putExecutable("istio-cni", "a foreign plugin")
			tn.put("conf/10-a.conflist", list("calico", "istio-cni"))
			tn.put("conf/20-b.conflist", "unrelated, invalid")
			before := tn.filesToRestore()
			tn.mustBeInstalled(tn.reconcile())
			installed := tn.read("conf/10-a.conflist")
			tn.put("conf/10-a.conflist", change(installed))
			for range 2 {
				report := tn.uninstall()
				want := node.Leftover{
					Path: tn.path("bin/sluice-cni"), NamedBy: tn.path("conf/10-a.conflist"), Noop: true,
				}
				if len(report.Left) != 1 || report.Left[0] != want {
					t.Fatalf("left %+v, want %+v", report.Left, want)
				}
				if got := tn.read("conf/10-a.conflist"); got != change(installed) {
					t.Errorf("the configuration was changed to %s", got)
				}
			}
			tn.put("conf/10-a.conflist", installed)
			if report := tn.uninstall(); len(report.Left) != 0 {
				t.Errorf("with a valid configuration: %+v, want no leftover", report.Left)
			}
			tn.wantRestored(before)
		})
	}
}

func TestReinstallationReplacesTheNoop(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResult("one", "calico", "sluice-cni")
	tn.uninstall()
	tn.mustBeInstalled(tn.reconcile())
	if tn.read("bin/sluice-cni") != pluginV1 {
		t.Error("the plugin was not installed again")
	}
	tn.remove("results/net-one-eth0")
	tn.uninstall()
	tn.wantRestored(before)
}

func TestUninstallWaitsForTheLastSandbox(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResult("one", "calico", "sluice-cni")
	var containerRuntime sync.WaitGroup
	containerRuntime.Go(func() {
		for strings.Contains(tn.read("conf/10-a.conflist"), "sluice-cni") { // the configuration is restored first
			if !strings.Contains(tn.read("bin/sluice-cni"), "plugin") {
				t.Error("the executable was removed before the configuration")
			}
		}
		tn.remove("results/net-one-eth0")
	})
	report, err := tn.node().Uninstall(t.Context(), time.Minute)
	containerRuntime.Wait()
	if err != nil || len(report.Left) != 0 {
		t.Errorf("the report is %+v, error %v; want no leftover", report, err)
	}
	tn.wantRestored(before)
}

// TestUninstallStopsIfAnAgentStarts covers an agent that starts during an uninstallation, for
// example after a rollback, and installs the plugin again.
func TestUninstallStopsIfAnAgentStarts(t *testing.T) {
	for name, row := range map[string]struct {
		before   func(tn *testNode) (release func()) // makes Uninstall wait until release is called
		restored bool                                // the configuration, when the agent starts
	}{
		"while the uninstallation waits for the lock": {func(tn *testNode) func() {
			lock, err := journal.Acquire(tn.t.Context(), tn.settings.StateDir)
			tn.must(err)
			return func() { tn.must(lock.Release()) }
		}, false},
		"while the uninstallation waits for a sandbox": {func(tn *testNode) func() {
			tn.cacheResult("one", "calico", "sluice-cni")
			return func() { tn.remove("results/net-one-eth0") }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tn := newTestNode(t)
				tn.put("conf/10-a.conflist", list("calico"))
				tn.mustBeInstalled(tn.reconcile())
				release := row.before(tn)
				done := make(chan error)
				go func() {
					_, err := tn.node().Uninstall(context.Background(), time.Minute)
					done <- err
				}()
				synctest.Wait()
				restored := !strings.Contains(tn.read("conf/10-a.conflist"), "sluice-cni")
				if restored != row.restored {
					t.Errorf("the configuration is restored: %t, want %t", restored, row.restored)
				}
				agent, err := journal.RegisterAgent(tn.settings.StateDir)
				tn.must(err)
				if row.restored {
					tn.mustBeInstalled(tn.reconcile())
				}
				release()
				if err := <-done; !errors.Is(err, journal.ErrAgentRunning) {
					t.Errorf("Uninstall: error %v, want ErrAgentRunning", err)
				}
				if tn.read("bin/sluice-cni") != pluginV1 {
					t.Error("the executable was replaced or removed while the agent runs")
				}
				tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
				tn.must(agent.Unregister())
			})
		})
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResult("one", "calico", "sluice-cni")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var containerRuntime sync.WaitGroup
	containerRuntime.Go(func() {
		// Uninstall begins to wait only after it has removed the plugin from the configuration.
		for strings.Contains(tn.read("conf/10-a.conflist"), "sluice-cni") {
			runtime.Gosched()
		}
		cancel()
	})
	report, err := tn.node().Uninstall(ctx, time.Hour)
	containerRuntime.Wait()
	tn.wantChains(map[string]string{"10-a.conflist": "calico"})
	if err != nil || len(report.Left) != 1 || tn.read("bin/sluice-cni") != noop {
		t.Errorf("the report is %+v, error %v; want the no-op as the leftover", report, err)
	}
}

// TestUninstallRemovesThePluginAgain covers another installer that read the configuration before
// the uninstallation changed it, and writes it afterwards.
func TestUninstallRemovesThePluginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := newTestNode(t)
		tn.put("conf/10-a.conflist", list("calico"))
		tn.mustBeInstalled(tn.reconcile())
		tn.cacheResult("one", "calico", "sluice-cni")
		type result struct {
			report node.Report
			err    error
		}
		done := make(chan result)
		go func() {
			report, err := tn.node().Uninstall(t.Context(), time.Minute)
			done <- result{report, err}
		}()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		synctest.Wait()
		tn.wantChains(map[string]string{"10-a.conflist": "calico"})
		tn.put("conf/10-a.conflist", list("calico", "istio-cni", "sluice-cni"))
		tn.remove("results/net-one-eth0")
		written := time.Now()
		r := <-done
		if r.err != nil || len(r.report.Left) != 0 {
			t.Errorf("the report is %+v, error %v; want no leftover", r.report, r.err)
		}
		if waited := time.Since(written); waited < 2*time.Second || waited > 3*time.Second {
			t.Errorf("Uninstall ended after %v, want 2 s for the runtime to read the file", waited)
		}
		tn.wantChains(map[string]string{"10-a.conflist": "calico istio-cni"})
	})
}

// TestSandboxThatIsBeingCreatedKeepsItsExecutable covers a sandbox that is being created when the
// configuration changes: its result is cached only afterwards.
func TestSandboxThatIsBeingCreatedKeepsItsExecutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := newTestNode(t)
		tn.put("conf/10-a.conflist", list("calico"))
		tn.mustBeInstalled(tn.reconcile())
		type result struct {
			report node.Report
			err    error
		}
		done := make(chan result)
		go func() {
			report, err := tn.node().Uninstall(t.Context(), 3*time.Second)
			done <- result{report, err}
		}()
		for range 10 { // the sandbox is being created
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if tn.read("bin/sluice-cni") != pluginV1 {
				t.Fatal("the executable was replaced or removed while a sandbox is being created")
			}
		}
		tn.wantChains(map[string]string{"10-a.conflist": "calico"})
		tn.cacheResult("late", "calico", "sluice-cni")
		if r := <-done; r.err != nil || len(r.report.Left) != 1 || tn.read("bin/sluice-cni") != noop {
			t.Errorf("the report is %+v, error %v; want the no-op as the leftover", r.report, r.err)
		}
	})
}
