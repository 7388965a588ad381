package node_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestNothingIsInsertedBeforeItCanWork(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	gate := errors.New("no credentials yet")
	b.settings.ReadyToInsert = func() error { return gate }
	s := b.reconcile()
	if s.Installed() || !slices.Contains(reasons(s), node.NotReadyToInsert) ||
		!strings.Contains(s.Problems[0].Message, "no credentials yet") {
		t.Errorf("%v", s.Problems)
	}
	b.wantChains(map[string]string{"10-a.conflist": "calico"})
	gate = nil
	b.installed(b.reconcile())
	gate = errors.New("credentials expired")
	b.put("conf/05-b.conflist", list("cilium-cni")) // pods must not start without redirection now
	b.installed(b.reconcile())
	b.wantChains(map[string]string{
		"05-b.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico sluice-cni",
	})
	b.remove("conf/10-a.conflist")
	b.put("conf/05-b.conflist", list("cilium-cni"))
	b.installed(b.reconcile())
	b.wantChains(map[string]string{"05-b.conflist": "cilium-cni sluice-cni"})
}

func TestModes(t *testing.T) {
	for name, row := range map[string]struct {
		set  func(s *node.Settings)
		file string
		want os.FileMode
	}{
		"a list keeps its mode": {
			func(*node.Settings) {}, "10-a.conflist", 0o604,
		},
		"a converted list has the mode of the plain configuration": {func(s *node.Settings) {
			s.CNIConfFileName = "20-b.conf"
		}, "20-b.conflist", 0o606},
		"a copy has the mode of the original": {owned, "02-istio-cni.conflist", 0o604},
		"a stand-alone configuration is readable by root only": {func(s *node.Settings) {
			s.Chained = false
		}, "YYY-sluice-cni.conf", 0o600},
		"a stand-alone configuration may be readable by the group": {func(s *node.Settings) {
			s.Chained, s.CNIConfGroupRead = false, true
		}, "YYY-sluice-cni.conf", 0o640},
		"an executable can always be run by all users": {
			func(*node.Settings) {}, "../bin/sluice-cni", 0o755,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNode(t)
			b.putAll(map[string]string{
				"conf/10-a.conflist": list("calico"), "conf/20-b.conf": plainBridge,
			})
			b.must(os.Chmod(b.path("conf/10-a.conflist"), 0o604))
			b.must(os.Chmod(b.path("conf/20-b.conf"), 0o606))
			row.set(&b.settings)
			b.reconcile()
			info, err := os.Stat(b.path("conf", row.file))
			if err != nil || info.Mode() != row.want {
				t.Errorf("%v, %v; want %v", info.Mode(), err, row.want)
			}
		})
	}
}

func TestDamagedJournalIsReportedAndRenamed(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	b.installed(b.reconcile())
	b.put("state/journal.json", "{")
	s := b.reconcile()
	b.installed(s)
	if !slices.Contains(reasons(s), node.JournalLost) {
		t.Errorf("%v", s.Problems)
	}
	if s := b.reconcile(); len(s.Problems) != 0 {
		t.Errorf("reported again: %v", s.Problems)
	}
	b.uninstall()
	b.wantChains(map[string]string{"10-a.conflist": "calico"})
}

func TestPassWithoutDriftWritesNothing(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	n := b.node()
	b.installed(n.Reconcile(t.Context()))
	times := func() map[string]syscall.Timespec {
		got := map[string]syscall.Timespec{}
		for _, path := range []string{
			"conf", "conf/10-a.conflist", "bin", "bin/sluice-cni", "state/journal.json",
		} {
			info, err := os.Stat(b.path(path))
			b.must(err)
			got[path] = info.Sys().(*syscall.Stat_t).Ctim
		}
		return got
	}
	before := times()
	for range 10 {
		if s := n.Reconcile(t.Context()); len(s.Changes) != 0 {
			t.Errorf("changed %v", s.Changes)
		}
	}
	if after := times(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestAnyOtherExecutableIsNoticed checks that changes are noticed although contents are not read in
// each reconciliation.
func TestAnyOtherExecutableIsNoticed(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	n := b.node()
	other := strings.ToUpper(pluginV1) // with the same size
	for reason, do := range map[string]func(){
		"another file": func() { b.executable("sluice-cni", other) },
		"the same file, rewritten": func() {
			b.must(os.WriteFile(b.path("bin/sluice-cni"), []byte(other), 0o755))
		},
		"another source": func() { b.put("image/v1", pluginV1) },
	} {
		for range 2 {
			b.installed(n.Reconcile(t.Context()))
		}
		do()
		if n.Reconcile(t.Context()); !b.executableIs(pluginV1) {
			t.Errorf("%s: the executable was not restored", reason)
		}
	}
}

func TestALinkedConfigurationStaysALink(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/real/calico", list("calico"))
	b.must(os.Symlink("real/calico", b.path("conf/10-a.conflist")))
	b.installed(b.reconcile())
	b.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
	b.uninstall()
	if target, err := os.Readlink(b.path("conf/10-a.conflist")); err != nil ||
		target != "real/calico" || b.read("conf/real/calico") != list("calico") {
		t.Errorf("%q, %v", target, err)
	}
}

// TestAnHourOfEventsLeaksNothing checks that an hour of events does not increase open descriptors
// and memory.
func TestAnHourOfEventsLeaksNothing(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := b.nodeOf(b.settings, node.Options{Now: func() time.Time { return now }})
	b.installed(n.Reconcile(t.Context()))
	before := descriptors(t)
	minutes := 10
	if os.Getenv("SLUICE_LONG") == "1" {
		minutes = 60
	}
	for minute := range minutes {
		b.put("conf/10-a.conflist", list("calico", fmt.Sprint("plugin-", minute)))
		b.put(fmt.Sprintf("conf/05-%d.conflist", minute%3), list("cilium-cni"))
		for range 10 {
			now = now.Add(6 * time.Second)
			n.Reconcile(t.Context())
		}
		b.remove(fmt.Sprintf("conf/05-%d.conflist", minute%3))
		b.installed(n.Reconcile(t.Context()))
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors after, %d before", after, before)
	}
	b.wantChains(map[string]string{"10-a.conflist": fmt.Sprintf("calico plugin-%d sluice-cni",
		minutes-1)})
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// TestRunningLeaksNothing checks that Run leaves no descriptor open. TestMain checks goroutines.
func TestRunningLeaksNothing(t *testing.T) {
	before := descriptors(t)
	for range 5 {
		t.Run("once", func(t *testing.T) {
			b := newTestNode(t)
			b.put("conf/10-a.conflist", list("calico"))
			await(t, b.running(b.node()), "installed", node.Status.Installed)
		})
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors after, %d before", after, before)
	}
}
