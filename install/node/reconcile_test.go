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
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func TestPluginIsNotInsertedBeforeItCanWork(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	notReady := errors.New("no credentials yet")
	tn.settings.ReadyToInsert = func() error { return notReady }
	s := tn.reconcile()
	if s.Installed() || !slices.Contains(reasons(s), node.NotReadyToInsert) ||
		!strings.Contains(s.Problems[0].Message, "no credentials yet") {
		t.Errorf("installed %t, problems %v; want NotReadyToInsert with the error of ReadyToInsert",
			s.Installed(), s.Problems)
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico"})
	notReady = nil
	tn.mustBeInstalled(tn.reconcile())
	notReady = errors.New("credentials expired")
	tn.put("conf/05-b.conflist", list("cilium-cni")) // pods must not start without redirection now
	tn.mustBeInstalled(tn.reconcile())
	tn.wantChains(map[string]string{
		"05-b.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico sluice-cni",
	})
	tn.remove("conf/10-a.conflist")
	tn.put("conf/05-b.conflist", list("cilium-cni"))
	tn.mustBeInstalled(tn.reconcile())
	tn.wantChains(map[string]string{"05-b.conflist": "cilium-cni sluice-cni"})
}

func TestFileModes(t *testing.T) {
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
			tn := newTestNode(t)
			tn.putAll(map[string]string{
				"conf/10-a.conflist": list("calico"), "conf/20-b.conf": plainBridge,
			})
			tn.must(os.Chmod(tn.path("conf/10-a.conflist"), 0o604))
			tn.must(os.Chmod(tn.path("conf/20-b.conf"), 0o606))
			row.set(&tn.settings)
			tn.reconcile()
			info, err := os.Stat(tn.path("conf", row.file))
			tn.must(err)
			if info.Mode() != row.want {
				t.Errorf("the mode of %s is %v, want %v", row.file, info.Mode(), row.want)
			}
		})
	}
}

func TestDamagedJournalIsReportedAndRenamed(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.put("state/journal.json", "{")
	s := tn.reconcile()
	tn.mustBeInstalled(s)
	if !slices.Contains(reasons(s), node.JournalDamaged) {
		t.Errorf("problems %v, want JournalDamaged", s.Problems)
	}
	if s := tn.reconcile(); len(s.Problems) != 0 {
		t.Errorf("after the journal was renamed, the problems are %v, want none", s.Problems)
	}
	tn.uninstall()
	tn.wantChains(map[string]string{"10-a.conflist": "calico"})
}

func TestReconciliationWithoutDriftWritesNothing(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	times := func() map[string]syscall.Timespec {
		got := map[string]syscall.Timespec{}
		for _, path := range []string{
			"conf", "conf/10-a.conflist", "bin", "bin/sluice-cni", "state/journal.json",
		} {
			info, err := os.Stat(tn.path(path))
			tn.must(err)
			got[path] = info.Sys().(*syscall.Stat_t).Ctim
		}
		return got
	}
	before := times()
	for range 10 {
		if s := n.Reconcile(t.Context()); len(s.Changes) != 0 {
			t.Errorf("a reconciliation without drift changed %v, want no change", s.Changes)
		}
	}
	if after := times(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the change times differ: %v before, %v after", before, after)
	}
}

// TestChangedExecutableIsNoticed checks that changes of the executable and of its source are
// noticed although their contents are not read in each reconciliation.
func TestChangedExecutableIsNoticed(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	n := tn.node()
	other := strings.ToUpper(pluginV1) // with the same size
	for reason, do := range map[string]func(){
		"another file": func() { tn.putExecutable("sluice-cni", other) },
		"the same file, rewritten": func() {
			tn.must(os.WriteFile(tn.path("bin/sluice-cni"), []byte(other), 0o755))
		},
	} {
		for range 2 {
			tn.mustBeInstalled(n.Reconcile(t.Context()))
		}
		do()
		if n.Reconcile(t.Context()); !tn.executableIs(pluginV1) {
			t.Errorf("%s: the executable was not restored", reason)
		}
	}
	tn.put("image/v1", other)
	if n.Reconcile(t.Context()); !tn.executableIs(other) {
		t.Error("the executable was not replaced after its source had changed")
	}
}

func TestALinkedConfigurationStaysALink(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/real/calico", list("calico"))
	tn.must(os.Symlink("real/calico", tn.path("conf/10-a.conflist")))
	tn.mustBeInstalled(tn.reconcile())
	tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
	tn.uninstall()
	if target, err := os.Readlink(tn.path("conf/10-a.conflist")); err != nil ||
		target != "real/calico" || tn.read("conf/real/calico") != list("calico") {
		t.Errorf("the link leads to %q, error %v; want real/calico with its original content", target, err)
	}
}

// TestReconciliationsLeakNoDescriptor checks that ten simulated minutes of foreign changes, or an
// hour with SLUICE_LONG, do not increase the number of open descriptors.
func TestReconciliationsLeakNoDescriptor(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	before := netnstest.Descriptors(t)
	minutes := 10
	if os.Getenv("SLUICE_LONG") == "1" {
		minutes = 60
	}
	for minute := range minutes {
		tn.put("conf/10-a.conflist", list("calico", fmt.Sprint("plugin-", minute)))
		tn.put(fmt.Sprintf("conf/05-%d.conflist", minute%3), list("cilium-cni"))
		for range 10 {
			now = now.Add(6 * time.Second)
			n.Reconcile(t.Context())
		}
		tn.remove(fmt.Sprintf("conf/05-%d.conflist", minute%3))
		tn.mustBeInstalled(n.Reconcile(t.Context()))
	}
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d open descriptors, want at most %d", after, before)
	}
	tn.wantChains(map[string]string{"10-a.conflist": fmt.Sprintf("calico plugin-%d sluice-cni",
		minutes-1)})
}

// TestRunningLeaksNothing checks that Run leaves no descriptor open. TestMain checks goroutines.
func TestRunningLeaksNothing(t *testing.T) {
	before := netnstest.Descriptors(t)
	for range 5 {
		t.Run("once", func(t *testing.T) {
			tn := newTestNode(t)
			tn.put("conf/10-a.conflist", list("calico"))
			await(t, tn.runNode(tn.node()), "the plugin is installed", node.Status.Installed)
		})
	}
	if after := netnstest.Descriptors(t); after > before {
		t.Errorf("%d open descriptors, want at most %d", after, before)
	}
}
