package node_test

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/node"
)

// TestWithoutABlockingProblemPodsGetThePlugin checks random directories with random settings. If no
// problem is blocking, the first file that a runtime finds is valid and has the plugin, or is a
// configuration of Multus, which may delegate to a configuration with the plugin.
func TestWithoutABlockingProblemPodsGetThePlugin(t *testing.T) {
	names := rapid.SampledFrom([]string{
		"01-a.conflist", "05-b.conf", "05-b.conflist", "10-c.conflist", "20-d.json", "30-e.conf",
	})
	contents := rapid.SampledFrom([]string{
		list("bridge"), list("calico", "tuning"), list("calico", "sluice-cni"),
		list("sluice-cni", "tuning"), plainBridge, "", "{",
		multus(`"clusterNetwork":"10-c"`), multus(`"clusterNetwork":"/etc/cni/net.d/30-e.conf"`),
		multus(`"delegates":[` + list("calico") + `]`),
	})
	unblocked := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		for name, content := range rapid.MapOf(names, contents).Draw(t, "files") {
			h.write(name, []byte(content))
		}
		if rapid.IntRange(0, 3).Draw(t, "hidden") == 0 {
			h.found.Files[names.Draw(t,
				"hidden name")] = node.File{Err: errors.New("a dangling link")}
		}
		h.settings.CNIConfFileName = rapid.SampledFrom([]string{
			"", "", "05-b.conf", "10-c.conflist",
		}).Draw(t, "named")
		h.settings.IstioOwnedCNIConfig = rapid.Bool().Draw(t, "owned")
		var state node.State
		for range 4 {
			state = node.Desired(h.settings, h.found, node.Relaxed{})
			h.apply(node.PendingTargets(state), allSteps)
		}
		if slices.ContainsFunc(state.Problems, func(p node.Problem) bool { return p.Blocking }) {
			return
		}
		unblocked++
		h.checkPluginIsUsed(state)
	})
	if unblocked == 0 {
		t.Error("every directory had a blocking problem, want some without")
	}
}

// TestStatusTellsWhenTheChainWasComplete covers an insertion that takes ten seconds.
func TestStatusTellsWhenTheChainWasComplete(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	start := time.Unix(1_000_000, 0)
	now := start
	tn.settings.ReadyToInsert = func() error { now = now.Add(10 * time.Second); return nil }
	s := tn.nodeAt(tn.settings, func() time.Time { return now }).Reconcile(t.Context())
	tn.mustBeInstalled(s)
	if !s.At.Equal(start) || !s.Done.Equal(start.Add(10*time.Second)) || s.Unread {
		t.Errorf("at %v, done %v, unread %t; want %v, 10 s later and false", s.At, s.Done, s.Unread, start)
	}
}

// TestStatusTellsThatTheChainCouldNotBeRead checks that a chain that was not read is not reported
// as an incomplete one.
func TestStatusTellsThatTheChainCouldNotBeRead(t *testing.T) {
	for name, row := range map[string]struct {
		before func(tn *testNode)
		unread bool
	}{
		"the journal cannot be read": {func(tn *testNode) {
			tn.put("state/journal.json", `{"version":99}`)
		}, true},
		"the directory cannot be read": {func(tn *testNode) {
			tn.must(os.RemoveAll(tn.path("conf")))
			tn.put("conf", "")
		}, true},
		"the directory is missing": {func(tn *testNode) { tn.must(os.RemoveAll(tn.path("conf"))) }, false},
		"the executable is missing": {func(tn *testNode) {
			tn.remove("image/v1")
		}, false},
	} {
		tn := newTestNode(t)
		tn.put("conf/10-a.conflist", list("calico"))
		row.before(tn)
		if s := tn.reconcile(); s.Installed() || s.Unread != row.unread {
			t.Errorf("%s: installed %t, unread %t, want false and %t; problems %v", name, s.Installed(), s.Unread,
				row.unread, s.Problems)
		}
	}
}

// checkPluginIsUsed fails the test unless a pod that starts now gets the plugin.
func (h *history) checkPluginIsUsed(state node.State) {
	var files []chain.File
	for name, f := range h.found.Files {
		files = append(files, chain.File{Name: name, Data: f.Data, Err: f.Err})
	}
	slices.SortFunc(files, func(a, b chain.File) int { return cmp.Compare(a.Name, b.Name) })
	first, err := chain.Read(files[0])
	switch {
	case err != nil:
		h.t.Fatalf("no problem is blocking, but the first file %s is invalid: error %v, problems %v", files[0].Name, err, state.Problems)
	case first.List.Has("sluice-cni"):
		return
	}
	named, _, err := chain.Discover(files, state.Primary)
	if err != nil || !named.List.Has("sluice-cni") {
		h.t.Fatalf("no problem is blocking, but the plugin is not in %s: error %v, problems %v", state.Primary, err, state.Problems)
	}
	if d := first.Delegates(named, h.settings.NodeCNIConfDir, "sluice-cni"); d != chain.Followed && d != chain.Unclear {
		h.t.Fatalf("no problem is blocking, but the first file %s lacks the plugin; problems %v", first.Name, state.Problems)
	}
}
