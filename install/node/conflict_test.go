package node_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/node"
)

// every calls do once per period, until the returned function is called.
func every(period time.Duration, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				do()
			}
		}
	})
	return func() {
		cancel()
		writer.Wait()
	}
}

func TestConflictingWriterIsNamedAndCorrected(t *testing.T) {
	for name, row := range map[string]struct {
		settings func(s *node.Settings)
		plugin   string
		do       func(tn *testNode)
		file     string
		writer   string
		advice   string
	}{
		"rewrites the primary configuration": {
			plugin: "cilium-cni", do: func(tn *testNode) {
				tn.put("conf/10-a.conflist", list("cilium-cni"))
			},
			file: "10-a.conflist", writer: "Cilium's agent", advice: "cni.exclusive=false",
		},
		"writes the primary configuration in place": {
			plugin: "calico", do: func(tn *testNode) {
				tn.must(os.WriteFile(tn.path("conf/10-a.conflist"), []byte(list("calico")), 0o644))
			},
			file: "10-a.conflist", writer: "Calico's install-cni", advice: "istioOwnedCNIConfig",
		},
		"deletes the owned configuration": {
			settings: owned, plugin: "vendor", do: func(tn *testNode) {
				_ = os.Remove(tn.path("conf/02-istio-cni.conflist"))
			},
			file: "02-istio-cni.conflist", writer: "the installer of vendor",
		},
		"renames the owned configuration": {
			settings: owned, plugin: "cilium-cni", do: func(tn *testNode) {
				_ = os.Rename(tn.path("conf/02-istio-cni.conflist"),
					tn.path("conf/02-istio-cni.conflist.cilium_bak"))
				tn.put("conf/x.conflist.cilium_bak", "")
			},
			file: "02-istio-cni.conflist", writer: "Cilium's agent", advice: "cni.exclusive=false",
		},
		"restores a plain configuration": {
			plugin: "bridge", do: func(tn *testNode) { tn.put("conf/05-a.conf", plainBridge) },
			file: "05-a.conf", writer: "the installer of bridge",
		},
	} {
		t.Run("the writer "+name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.put("conf/10-a.conflist", list(row.plugin))
			if row.settings != nil {
				row.settings(&tn.settings)
			}
			statuses := tn.runNode(tn.node())
			await(t, statuses, "the plugin is installed", node.Status.Installed)
			stop := every(100*time.Millisecond, func() { row.do(tn) })
			// The writer is reported after three rewrites, which take 0.3 s.
			status := await(t, statuses, "the writer is reported", func(s node.Status) bool {
				return len(s.ConflictingWriters) > 0
			})
			stop()
			r := status.ConflictingWriters[0]
			if r.File != row.file || r.Writer != row.writer ||
				!strings.Contains(r.Advice, row.advice) {
				t.Errorf("reported %+v; want the file %s, the writer %q and the advice %q", r, row.file,
					row.writer, row.advice)
			}
			if status.Installed() || !slices.Contains(reasons(status), node.ConflictingWrites) ||
				status.Totals.Rewrites[row.writer] < 3 {
				t.Errorf("installed %t, problems %v, rewrites %v; want a blocking ConflictingWriter "+
					"and at least 3 rewrites", status.Installed(), status.Problems,
					status.Totals.Rewrites)
			}
			await(t, statuses, "the plugin is restored", func(node.Status) bool { return primaryHasPlugin(tn) })
		})
	}
}

// primaryHasPlugin reports whether the configuration that runtimes use has the plugin.
func primaryHasPlugin(tn *testNode) bool {
	types, err := typesInUse(tn)
	return err == nil && slices.Contains(types, "sluice-cni")
}

// typesInUse returns the plugin types of the configuration that runtimes use.
func typesInUse(tn *testNode) ([]string, error) {
	entries, err := os.ReadDir(tn.path("conf"))
	if err != nil {
		return nil, err
	}
	var files []chain.File
	for _, e := range entries {
		data, err := os.ReadFile(tn.path("conf", e.Name()))
		files = append(files, chain.File{Name: e.Name(), Data: data, Err: err})
	}
	choice, _, err := chain.Discover(files, "")
	if err != nil {
		return nil, err
	}
	return choice.List.Types(), nil
}

// TestConflictingWriterIsReportedFromTheThirdRewrite uses a simulated clock, so that the number of
// rewrites does not depend on the machine.
func TestConflictingWriterIsReportedFromTheThirdRewrite(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	reconcile := func() node.Status { return n.Reconcile(t.Context()) }
	rewrite := func(after time.Duration) node.Status {
		now = now.Add(after)
		tn.put("conf/10-a.conflist", list("calico"))
		return reconcile()
	}
	tn.mustBeInstalled(reconcile())
	tn.mustBeInstalled(rewrite(time.Second))
	tn.mustBeInstalled(rewrite(time.Second)) // an upgrade of the network may write twice
	if s := rewrite(time.Second); s.Installed() || len(s.ConflictingWriters) != 1 ||
		s.ConflictingWriters[0].Rewrites != 3 {
		t.Errorf("after the third rewrite: %+v; want a blocking problem and 3 rewrites", s)
	}
	now = now.Add(11 * time.Second)
	tn.mustBeInstalled(reconcile()) // no rewrites for a while
	if s := n.Status(); len(s.ConflictingWriters) != 0 {
		t.Errorf("a writer that has stopped is reported: %v", s.ConflictingWriters)
	}
	if got := n.Status().Totals.Rewrites["Calico's install-cni"]; got != 3 {
		t.Errorf("%d rewrites counted, want 3", got)
	}
}

// TestSlowConflictingWriterIsNamed covers a conflicting writer with pauses. The writer is reported
// from its third rewrite on, until it has missed two of its intervals. The node stays ready,
// because pods almost always get the plugin, until the writer becomes fast.
func TestSlowConflictingWriterIsNamed(t *testing.T) {
	for _, period := range []time.Duration{12 * time.Second, time.Minute, 9 * time.Minute} {
		t.Run(period.String(), func(t *testing.T) {
			tn := newTestNode(t)
			tn.put("conf/10-a.conflist", list("calico"))
			now := time.Unix(1_000_000, 0)
			n := tn.nodeAt(tn.settings, func() time.Time { return now })
			n.Reconcile(t.Context())
			rewrite := func(after time.Duration) node.Status {
				now = now.Add(after)
				tn.put("conf/10-a.conflist", list("calico"))
				return n.Reconcile(t.Context())
			}
			for i := range 10 {
				s := rewrite(period)
				tn.mustBeInstalled(s)
				if named := len(s.ConflictingWriters) == 1 &&
					slices.Contains(reasons(s), node.ConflictingWrites); named != (i >= 2) {
					t.Errorf("rewrite %d: the writer is reported: %t, want %t; problems %v", i+1, named,
						i >= 2, s.Problems)
				}
			}
			now = now.Add(2 * period)
			// A writer is forgotten after ten minutes without a rewrite, whatever its interval.
			want := min(1, int(10*time.Minute/(2*period)))
			if s := n.Reconcile(t.Context()); len(s.ConflictingWriters) != want {
				t.Errorf("two intervals after the last rewrite the conflicting writers are %v, want %d",
					s.ConflictingWriters, want)
			}
			for range 2 {
				rewrite(time.Second)
			}
			if s := rewrite(time.Second); s.Installed() {
				t.Errorf("with a fast writer: problems %v, want one that is blocking", s.Problems)
			}
			now = now.Add(11 * time.Second)
			s := n.Reconcile(t.Context())
			tn.mustBeInstalled(s)
			if len(s.ConflictingWriters) != 0 {
				t.Errorf("a writer that has stopped is reported: %v", s.ConflictingWriters)
			}
		})
	}
}

// TestRareRewritesAreNotAConflict covers upgrades of a network a quarter of an hour apart.
func TestRareRewritesAreNotAConflict(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	n.Reconcile(t.Context())
	for range 6 {
		now = now.Add(15 * time.Minute)
		tn.put("conf/10-a.conflist", list("calico"))
		if s := n.Reconcile(t.Context()); len(s.ConflictingWriters) != 0 {
			t.Errorf("conflicting writers %v, want none", s.ConflictingWriters)
		}
	}
}

// TestRunningIstioAgentIsToleratedAfterAWhile covers istio-cni's agent, which restores its element
// in the chain. Both plugins in one chain are harmless; a file that changes continuously is not.
func TestRunningIstioAgentIsToleratedAfterAWhile(t *testing.T) {
	tn := newTestNode(t)
	tn.putExecutable("istio-cni", "istio's plugin")
	tn.put("conf/10-a.conflist", list("calico", "istio-cni"))
	before := tn.filesToRestore()
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	restoreElement := func() bool {
		l, err := chain.Parse([]byte(tn.read("conf/10-a.conflist")))
		tn.must(err)
		if l.Has("istio-cni") {
			return false
		}
		data, err := l.Insert([]byte(`{"type":"istio-cni"}`))
		tn.must(err)
		tn.put("conf/10-a.conflist", string(data))
		return true
	}
	var status node.Status
	rounds := 0
	for status = n.Reconcile(t.Context()); restoreElement(); status = n.Reconcile(t.Context()) {
		now = now.Add(time.Second)
		if rounds++; rounds > 10 {
			t.Fatal("istio-cni's element is still removed after 10 rounds")
		}
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico istio-cni sluice-cni"})
	tn.mustBeInstalled(status)
	if !slices.Contains(reasons(status), node.OtherPluginStays) || len(status.ConflictingWriters) != 1 ||
		status.ConflictingWriters[0].Writer != "istio-cni's agent" {
		t.Errorf("problems %v, conflicting writers %v; want OtherPluginStays and istio-cni's agent", status.Problems, status.ConflictingWriters)
	}
	// istio-cni's agent is uninstalled: first its element is removed, then its executable.
	tn.put("conf/10-a.conflist", list("calico", "sluice-cni"))
	tn.remove("bin/istio-cni")
	now = now.Add(time.Hour)
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
	tn.uninstall()
	if types, err := typesInUse(tn); err != nil || strings.Join(types, " ") != "calico" {
		t.Errorf("after uninstallation the chain in use is %v, error %v; want calico; the files before: %v", types, err, before)
	}
}

// TestRepeatedInstallationIsNotAConflict checks that the writes of earlier installations and
// uninstallations are not attributed to other programs.
func TestRepeatedInstallationIsNotAConflict(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conf", plainBridge)
	n := tn.node()
	for range 5 {
		tn.mustBeInstalled(n.Reconcile(t.Context()))
		if _, err := n.Uninstall(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		tn.settings.IstioOwnedCNIConfig = !tn.settings.IstioOwnedCNIConfig
		tn.must(n.Update(tn.settings))
	}
	if s := n.Status(); len(s.ConflictingWriters) != 0 || len(s.Totals.Rewrites) != 0 {
		t.Errorf("conflicting writers %v, totals %+v; want none and no rewrites", s.ConflictingWriters, s.Totals)
	}
}

// appendPlugin appends a plugin to a list, unless it is already the last plugin.
func (tn *testNode) appendPlugin(file, plugin string) {
	tn.t.Helper()
	l, err := chain.Parse([]byte(tn.read(file)))
	tn.must(err)
	if types := l.Types(); types[len(types)-1] != plugin {
		data, err := l.Insert(fmt.Appendf(nil, `{"type":%q}`, plugin))
		tn.must(err)
		tn.put(file, string(data))
	}
}

func TestForeignPluginThatIsKeptLastIsTolerated(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	status := n.Reconcile(t.Context())
	for range 10 {
		tn.appendPlugin("conf/10-a.conflist", "linkerd-cni")
		now = now.Add(time.Second)
		status = n.Reconcile(t.Context())
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni linkerd-cni"})
	tn.mustBeInstalled(status)
	if !slices.Contains(reasons(status), node.OtherPluginStays) {
		t.Errorf("problems %v, want OtherPluginStays", status.Problems)
	}
}

// TestAnotherAgentIsAConflictingWriter covers agents of two installations that share the state
// directory, and insert different elements.
func TestAnotherAgentIsAConflictingWriter(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	clock := func() time.Time { return now }
	s := tn.settings
	s.Element = []byte(elementV2)
	agents := []*node.Node{tn.nodeAt(tn.settings, clock), tn.nodeAt(s, clock)}
	for round := range 4 {
		for i, n := range agents {
			now = now.Add(time.Second)
			s := n.Reconcile(t.Context())
			if len(s.Changes) == 0 {
				t.Fatalf("agent %d does not write its element", i)
			}
			// An agent does not know which content an earlier process wrote.
			wantConflict := round == 3
			if got := len(s.ConflictingWriters) == 1 && !s.Installed(); got != wantConflict {
				t.Errorf("round %d, agent %d: conflict: %t, want %t; problems %v", round, i, got,
					wantConflict, s.Problems)
			}
			const writer = "another node agent of Sluice"
			if got := s.Totals.Rewrites; len(got) > 1 || got[writer] != uint64(round) {
				t.Errorf("round %d, agent %d: rewrites %v, want %d of %s", round, i, got, round, writer)
			}
			if text := fmt.Sprint(s.ConflictingWriters); wantConflict &&
				!strings.Contains(text, writer+" has repeatedly rewritten 10-a.conflist") {
				t.Errorf("conflicting writers: %s, want %s", text, writer)
			}
		}
	}
	agents[0].Reconcile(t.Context()) // and the second agent ends
	now = now.Add(11 * time.Second)
	tn.mustBeInstalled(agents[0].Reconcile(t.Context()))
}

// TestAnEarlierContentIsAForeignWrite covers a program that restores an earlier content of the
// agent's file.
func TestAnEarlierContentIsAForeignWrite(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	earlier := tn.read("conf/10-a.conflist")
	s := tn.settings
	s.Element = []byte(elementV2)
	tn.must(n.Update(s))
	if s := n.Reconcile(t.Context()); len(s.Changes) != 1 || len(s.Totals.Rewrites) != 0 {
		t.Errorf("changes %v, rewrites %v; want a change by the agent", s.Changes, s.Totals.Rewrites)
	}
	tn.put("conf/10-a.conflist", earlier)
	if got := n.Reconcile(t.Context()).Totals.Rewrites; got["Calico's install-cni"] != 1 {
		t.Errorf("rewrites %v, want 1 of Calico's install-cni", got)
	}
}
