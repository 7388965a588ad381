package node_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

// wantProblem fails the test unless the node is not ready because of exactly one problem, which has
// the reason and all texts in its message.
func (tn *testNode) wantProblem(s node.Status, reason node.Reason, texts ...string) {
	tn.t.Helper()
	tn.wantBlocked(s, reason, "")
	for _, text := range texts {
		if len(s.Problems) == 1 && !strings.Contains(s.Problems[0].Message, text) {
			tn.t.Errorf("problem %v, want the text %q", s.Problems[0], text)
		}
	}
}

// TestConfigurationThatSortsFirstIsReported covers a file of another network that sorts before the
// file in cniConfFileName: no pod gets the plugin, and this is always reported.
func TestConfigurationThatSortsFirstIsReported(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.settings.CNIConfFileName = "10-a.conflist"
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	tn.put("conf/05-new.conflist", list("cilium-cni", "portmap"))
	s := n.Reconcile(t.Context())
	tn.wantProblem(s, node.ConfigurationNotInUse, "cniConfFileName is 10-a.conflist", "in order of names, 05-new.conflist",
		"Cilium's agent (cilium-cni, portmap)", "set cniConfFileName to 05-new.conflist",
		"cni_default_network")
	if s.Primary != "05-new.conflist" || strings.Join(s.Plugins, " ") != "cilium-cni portmap" {
		t.Errorf("Primary is %s with %v, want 05-new.conflist with cilium-cni portmap", s.Primary, s.Plugins)
	}
	// Changes to 10-a.conflist must not be attributed to Cilium.
	tn.put("conf/10-a.conflist", list("calico", "tuning"))
	if s := n.Reconcile(t.Context()); s.Totals.Rewrites["Calico's install-cni"] != 1 {
		t.Errorf("rewrites %v, want 1 of Calico's install-cni", s.Totals.Rewrites)
	}
	tn.wantChains(map[string]string{
		"05-new.conflist": "cilium-cni portmap", "10-a.conflist": "calico tuning sluice-cni",
	})
	tn.remove("conf/05-new.conflist")
	s = n.Reconcile(t.Context())
	tn.mustBeInstalled(s)
	if s.Primary != "10-a.conflist" || len(s.Problems) != 0 {
		t.Errorf("Primary is %s, problems %v; want 10-a.conflist and no problem", s.Primary, s.Problems)
	}
}

// TestMissingNamedFileIsReportedIfADifferentFileIsInUse covers a network that was updated and
// writes its configuration to a file other than the one in cniConfFileName: pods start without the
// plugin.
func TestMissingNamedFileIsReportedIfADifferentFileIsInUse(t *testing.T) {
	for name, settings := range map[string]func(*node.Settings){
		"edited": func(*node.Settings) {}, "copied": owned,
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			settings(&tn.settings)
			tn.settings.CNIConfFileName = "20-b.conflist"
			tn.put("conf/10-a.conflist", list("calico", "portmap"))
			s := tn.reconcile()
			tn.wantProblem(s, node.ConfigurationNotInUse,
				"cniConfFileName is 20-b.conflist, which is missing or invalid, but runtimes use",
				"10-a.conflist, of Calico's install-cni (calico, portmap)", "new pods have no redirection",
				"set cniConfFileName to 10-a.conflist or to an empty string")
			if s.Primary != "10-a.conflist" || strings.Join(s.Plugins, " ") != "calico portmap" {
				t.Errorf("Primary is %q with %v, want 10-a.conflist with calico portmap", s.Primary, s.Plugins)
			}
			tn.put("conf/20-b.conflist", list("calico"))
			tn.remove("conf/10-a.conflist")
			tn.mustBeInstalled(tn.reconcile())
			tn.put("conf/30-c.conflist", list("other"))
			tn.remove("conf/20-b.conflist")
			s = tn.reconcile()
			if name == "copied" { // the copy stays, and sorts first
				tn.wantProblem(s, node.NoNetworkConfiguration)
			} else {
				tn.wantProblem(s, node.ConfigurationNotInUse, "30-c.conflist")
			}
		})
	}
}

// TestMissingNamedFileIsTolerableIfTheFileInUseHasThePlugin covers a setting that names a file that
// does not exist, after the plugin was inserted into the file in use: the node stays ready, and
// reports the problem.
func TestMissingNamedFileIsTolerableIfTheFileInUseHasThePlugin(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.settings.CNIConfFileName = "20-b.conflist"
	s := tn.reconcile()
	tn.mustBeInstalled(s)
	if got := reasons(s); !slices.Equal(got, []node.Reason{node.ConfigurationNotInUse}) ||
		s.Primary != "10-a.conflist" {
		t.Errorf("reasons %v, Primary %q; want ConfigurationNotInUse and 10-a.conflist", got, s.Primary)
	}
	tn.wantChains(map[string]string{"10-a.conflist": "calico sluice-cni"})
}

// TestRewriteOfTheNamedFileIsNotAttributedToTheFirstFile checks that the writer of the file that
// sorts first is not reported when another program restores the named file.
func TestRewriteOfTheNamedFileIsNotAttributedToTheFirstFile(t *testing.T) {
	tn := newTestNode(t)
	tn.putAll(map[string]string{
		"conf/05-new.conflist": list("cilium-cni"), "conf/10-a.conf": plainBridge,
	})
	tn.settings.CNIConfFileName = "10-a.conf"
	n := tn.node()
	n.Reconcile(t.Context())
	tn.put("conf/10-a.conf", plainBridge)
	if s := n.Reconcile(t.Context()); s.Totals.Rewrites["the installer of bridge"] != 1 {
		t.Errorf("rewrites %v, want 1 of the installer of bridge", s.Totals.Rewrites)
	}
	tn.wantChains(map[string]string{
		"05-new.conflist": "cilium-cni", "10-a.conflist": "bridge sluice-cni",
	})
}

// TestConfigurationThatSortsFirstMayContainThePlugin covers a file that sorts first and got the
// plugin before cniConfFileName named a different file.
func TestConfigurationThatSortsFirstMayContainThePlugin(t *testing.T) {
	tn := newTestNode(t)
	tn.putAll(map[string]string{
		"conf/05-a.conflist": list("cilium-cni"), "conf/10-a.conflist": list("calico"),
	})
	tn.mustBeInstalled(tn.reconcile())
	tn.settings.CNIConfFileName = "10-a.conflist"
	s := tn.reconcile()
	tn.mustBeInstalled(s)
	if got := reasons(s); !slices.Equal(got, []node.Reason{node.ConfigurationNotInUse}) {
		t.Errorf("reasons %v, want only ConfigurationNotInUse", got)
	}
	tn.wantChains(map[string]string{
		"05-a.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico sluice-cni",
	})
}

// TestALinkThatDanglesInTheContainerIsReported covers a link that is dangling in the agent's
// container, but leads to a file on the node.
func TestALinkThatDanglesInTheContainerIsReported(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.must(os.Symlink("/only/on/the/node.conflist", tn.path("conf/05-link.conflist")))
	for range 2 {
		s := tn.reconcile()
		tn.wantProblem(s, node.InvalidConfiguration, "05-link.conflist", "a link to /only/on/the/node.conflist",
			"new pods have no redirection",
			"CRI-O skips it")
		if s.Primary != "05-link.conflist" || len(s.Plugins) != 0 {
			t.Errorf("Primary is %s with %v, want 05-link.conflist with unknown plugins", s.Primary, s.Plugins)
		}
	}
	if got := tn.read("conf/10-a.conflist"); !strings.Contains(got, "sluice-cni") {
		t.Errorf("the next configuration is %s, want the plugin in it", got)
	}
	tn.remove("conf/05-link.conflist")
	tn.mustBeInstalled(tn.reconcile())
}

// TestNoCopyIsPutBeforeALinkThatDanglesInTheContainer checks that the agent installs no copy of the
// next configuration before a link that it cannot read: the copy would change the network of the
// node. The next configuration gets the plugin, because a runtime that skips the link uses this
// configuration.
func TestNoCopyIsPutBeforeALinkThatDanglesInTheContainer(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	owned(&tn.settings)
	link := func() {
		tn.must(os.Symlink("/only/on/the/node.conflist", tn.path("conf/05-link.conflist")))
	}
	link()
	for range 2 {
		s := tn.reconcile()
		tn.wantProblem(s, node.InvalidConfiguration, "05-link.conflist", "a link to /only/on/the/node.conflist")
		if s.Primary != "05-link.conflist" {
			t.Errorf("Primary is %s, want 05-link.conflist", s.Primary)
		}
	}
	if _, err := os.Lstat(tn.path("conf/02-istio-cni.conflist")); err == nil {
		t.Error("a copy of the next configuration sorts before the link")
	}
	if got := tn.read("conf/10-a.conflist"); !strings.Contains(got, "sluice-cni") {
		t.Errorf("the next configuration, which a runtime uses if it skips the link, is %s, "+
			"want the plugin in it", got)
	}
	tn.remove("conf/05-link.conflist")
	tn.mustBeInstalled(tn.reconcile())
	tn.wantChains(map[string]string{
		"02-istio-cni.conflist": "calico sluice-cni", "10-a.conflist": "calico",
	})
	link() // after the copy was installed
	tn.put("conf/10-a.conflist", list("calico", "tuning"))
	tn.mustBeInstalled(tn.reconcile())
	if got := tn.read("conf/02-istio-cni.conflist"); !strings.Contains(got, "tuning") {
		t.Errorf("the copy is %s, want the changed chain", got)
	}
	tn.remove("conf/05-link.conflist")
	tn.put("conf/10-a.conflist", list("calico"))
	tn.uninstall()
	tn.wantRestored(before)
}

// TestAFileThatIsBeingWrittenIsTolerated covers a file that is invalid while its owner writes it.
// The node stays ready unless the file stays invalid.
func TestAFileThatIsBeingWrittenIsTolerated(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	reconcileAfter := func(after time.Duration) node.Status {
		now = now.Add(after)
		return n.Reconcile(t.Context())
	}
	tn.put("conf/05-b.conflist", "{")
	// The first reconciliation reports the file immediately.
	tn.wantProblem(reconcileAfter(0), node.InvalidConfiguration, "05-b.conflist")
	tn.put("conf/05-b.conflist", list("cilium-cni"))
	tn.mustBeInstalled(reconcileAfter(0))
	for range 3 {
		tn.put("conf/05-b.conflist", "{")
		for range 4 {
			s := reconcileAfter(100 * time.Millisecond)
			tn.mustBeInstalled(s)
			if len(s.Problems) > 0 {
				t.Errorf("problems after at most 400 ms: %v, want none", s.Problems)
			}
		}
		tn.put("conf/05-b.conflist", list("cilium-cni"))
		tn.mustBeInstalled(reconcileAfter(11 * time.Minute)) // occasional writes are not a conflict
	}
	tn.put("conf/05-b.conflist", "{")
	tn.mustBeInstalled(reconcileAfter(0))
	for range 3 {
		tn.wantProblem(reconcileAfter(500*time.Millisecond), node.InvalidConfiguration, "05-b.conflist", "containerd",
			"no pod starts", "CRI-O skips it")
	}
	tn.remove("conf/05-b.conflist")
	tn.mustBeInstalled(reconcileAfter(0))
	tn.put("conf/05-b.conflist", "") // a new file with the same name
	tn.mustBeInstalled(reconcileAfter(time.Second))
	tn.wantProblem(reconcileAfter(500*time.Millisecond), node.InvalidConfiguration, "05-b.conflist")
}

// TestNextConfigurationHasThePluginWhileThePrimaryOneIsInvalid checks that pods are redirected if
// the runtime skips an incomplete file. Afterwards the plugin stays in both files.
func TestNextConfigurationHasThePluginWhileThePrimaryOneIsInvalid(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.put("conf/20-b.conflist", list("flannel"))
	before := tn.filesToRestore()
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	tn.put("conf/10-a.conflist", "")
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	tn.wantChains(map[string]string{"10-a.conflist": "not valid", "20-b.conflist": "flannel sluice-cni"})
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	tn.wantChains(map[string]string{
		"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel sluice-cni",
	})
	tn.uninstall()
	tn.wantRestored(before)
}
