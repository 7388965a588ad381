package node_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestRemovalOfTheExecutableIsReported(t *testing.T) {
	for name, do := range map[string]func(b *testNode){
		"removes it":          func(b *testNode) { b.remove("bin/sluice-cni") },
		"writes another file": func(b *testNode) { b.executable("sluice-cni", "something else") },
		"makes it not executable": func(b *testNode) {
			b.must(os.Chmod(b.path("bin/sluice-cni"), 0o644))
		},
		"restores an older version": func(b *testNode) { b.executable("sluice-cni", pluginV2) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNode(t)
			b.put("conf/10-a.conflist", list("calico"))
			now := time.Unix(1_000_000, 0)
			n := b.nodeOf(b.settings, node.Options{Now: func() time.Time { return now }})
			b.installed(n.Reconcile(t.Context()))
			var s node.Status
			for range 3 {
				now = now.Add(100 * time.Millisecond)
				do(b)
				s = n.Reconcile(t.Context())
			}
			b.says(s, node.ConflictingWrites, "repeatedly removed or replaced "+b.path("bin/sluice-cni"),
				"pods that start in between fail", "find the program")
			if len(s.ConflictingWriters) != 1 || s.ConflictingWriters[0].Rewrites != 3 ||
				s.ConflictingWriters[0].File != b.path("bin/sluice-cni") ||
				s.Totals.Rewrites["an unknown program"] != 3 {
				t.Errorf("%v, %v", s.ConflictingWriters, s.Totals)
			}
			if !b.executableIs(pluginV1) {
				t.Error("the executable was not restored")
			}
			now = now.Add(11 * time.Second)
			b.installed(n.Reconcile(t.Context()))
		})
	}
}

// TestRemovalOfTheExecutableIsReportedWithAToleratedWriter checks that a tolerated conflict about
// the order of the chain does not hide the repeated removal of the executable.
func TestRemovalOfTheExecutableIsReportedWithAToleratedWriter(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	now := time.Unix(1_000_000, 0)
	n := b.nodeOf(b.settings, node.Options{Now: func() time.Time { return now }})
	n.Reconcile(t.Context())
	var s node.Status
	for range 5 {
		now = now.Add(time.Second)
		b.append("conf/10-a.conflist", "linkerd-cni")
		b.remove("bin/sluice-cni")
		s = n.Reconcile(t.Context())
	}
	if s.Installed() || !slices.Contains(reasons(s), node.OtherPluginStays) ||
		len(s.ConflictingWriters) != 2 {
		t.Errorf("%v, %v", s.Problems, s.ConflictingWriters)
	}
}

// TestUpgradeOfTheExecutableIsNotAConflict checks that another version of the plugin is not
// attributed to another writer.
func TestUpgradeOfTheExecutableIsNotAConflict(t *testing.T) {
	b := newTestNode(t)
	b.put("conf/10-a.conflist", list("calico"))
	n := b.node()
	for range 3 {
		b.must(n.Update(b.upgraded()))
		b.installed(n.Reconcile(t.Context()))
		b.must(n.Update(b.settings))
		b.installed(n.Reconcile(t.Context()))
		b.put("image/v1", pluginV1+"patched")
		b.installed(n.Reconcile(t.Context()))
		b.put("image/v1", pluginV1)
	}
	if s := n.Status(); len(s.ConflictingWriters) != 0 || len(s.Totals.Rewrites) != 0 {
		t.Errorf("%v, %v", s.ConflictingWriters, s.Totals)
	}
}
