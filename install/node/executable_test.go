package node_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestConflictingWriterOfTheExecutableIsReported(t *testing.T) {
	for name, do := range map[string]func(tn *testNode){
		"removes the executable": func(tn *testNode) { tn.remove("bin/sluice-cni") },
		"writes another file":    func(tn *testNode) { tn.putExecutable("sluice-cni", "something else") },
		"makes the executable not executable": func(tn *testNode) {
			tn.must(os.Chmod(tn.path("bin/sluice-cni"), 0o644))
		},
		"writes another version": func(tn *testNode) { tn.putExecutable("sluice-cni", pluginV2) },
	} {
		t.Run("the writer "+name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.put("conf/10-a.conflist", list("calico"))
			now := time.Unix(1_000_000, 0)
			n := tn.nodeAt(tn.settings, func() time.Time { return now })
			tn.mustBeInstalled(n.Reconcile(t.Context()))
			var s node.Status
			for range 3 {
				now = now.Add(100 * time.Millisecond)
				do(tn)
				s = n.Reconcile(t.Context())
			}
			tn.wantProblem(s, node.ConflictingWrites, "repeatedly removed or replaced "+tn.path("bin/sluice-cni"),
				"pods that start before the agent restores the file fail", "find the program")
			if len(s.ConflictingWriters) != 1 || s.ConflictingWriters[0].Rewrites != 3 ||
				s.ConflictingWriters[0].File != tn.path("bin/sluice-cni") ||
				s.Totals.Rewrites["an unknown program"] != 3 {
				t.Errorf("conflicting writers %v, totals %+v; want an unknown program with 3 rewrites", s.ConflictingWriters, s.Totals)
			}
			if !tn.executableIs(pluginV1) {
				t.Error("the executable was not restored")
			}
			now = now.Add(11 * time.Second)
			tn.mustBeInstalled(n.Reconcile(t.Context()))
		})
	}
}

// TestToleratedConflictDoesNotHideTheRemovalOfTheExecutable covers a tolerated conflict about the
// order of the chain, together with the repeated removal of the executable.
func TestToleratedConflictDoesNotHideTheRemovalOfTheExecutable(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := tn.nodeAt(tn.settings, func() time.Time { return now })
	n.Reconcile(t.Context())
	var s node.Status
	for range 5 {
		now = now.Add(time.Second)
		tn.appendPlugin("conf/10-a.conflist", "linkerd-cni")
		tn.remove("bin/sluice-cni")
		s = n.Reconcile(t.Context())
	}
	if s.Installed() || !slices.Contains(reasons(s), node.OtherPluginStays) ||
		len(s.ConflictingWriters) != 2 {
		t.Errorf("problems %v, conflicting writers %v; want a blocking problem and 2 writers", s.Problems, s.ConflictingWriters)
	}
}

// TestUpgradeOfTheExecutableIsNotAConflict checks that versions of the plugin that the agent
// installs are not attributed to another program.
func TestUpgradeOfTheExecutableIsNotAConflict(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	n := tn.node()
	for range 3 {
		tn.must(n.Update(tn.upgraded()))
		tn.mustBeInstalled(n.Reconcile(t.Context()))
		tn.must(n.Update(tn.settings))
		tn.mustBeInstalled(n.Reconcile(t.Context()))
		tn.put("image/v1", pluginV1+"patched")
		tn.mustBeInstalled(n.Reconcile(t.Context()))
		tn.put("image/v1", pluginV1)
	}
	if s := n.Status(); len(s.ConflictingWriters) != 0 || len(s.Totals.Rewrites) != 0 {
		t.Errorf("conflicting writers %v, totals %+v; want none and no rewrites", s.ConflictingWriters, s.Totals)
	}
}

// TestADirectoryWithoutTheOtherPluginsIsReported checks that the status says if the directory of
// executables contains none of the other plugins in the chain: the runtime may search another
// directory.
func TestADirectoryWithoutTheOtherPluginsIsReported(t *testing.T) {
	for name, row := range map[string]struct {
		plugins []string
		add     func(tn *testNode)
		want    []string
	}{
		"all plugins are elsewhere": {
			plugins: []string{"calico", "portmap"}, want: []string{"calico", "portmap"},
		},
		"one of the plugins exists": {
			plugins: []string{"calico", "bridge"},
		},
		"a plugin is a link to a place on the node": {
			plugins: []string{"calico"},
			add: func(tn *testNode) {
				tn.must(os.Symlink("/only/on/the/node", tn.path("bin/calico")))
			},
		},
		"plugins that Sluice replaces may have a directory of their own": {
			plugins: []string{"calico", "istio-cni"},
			add:     func(tn *testNode) { tn.putExecutable("istio-cni", "x") },
			want:    []string{"calico"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.put("conf/10-a.conflist", list(row.plugins...))
			if row.add != nil {
				row.add(tn)
			}
			n := tn.node()
			for range 2 { // before and after the insertion
				s := n.Reconcile(t.Context())
				tn.mustBeInstalled(s)
				if !slices.Equal(s.PluginsElsewhere, row.want) {
					t.Errorf("plugins elsewhere: %q, want %q", s.PluginsElsewhere, row.want)
				}
			}
		})
	}
}
