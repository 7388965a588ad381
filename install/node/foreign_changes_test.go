package node_test

import (
	"maps"
	"os"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

// A changeCase is a foreign change to a maintained node, with the expected result.
type changeCase struct {
	settings func(s *node.Settings)
	before   func(tn *testNode)
	do       func(tn *testNode)
	want     map[string]string
}

var changeCases = map[string]changeCase{
	"a configuration that sorts before the primary one": {
		do: func(tn *testNode) { tn.put("conf/05-new.conflist", list("cilium-cni")) },
		want: map[string]string{
			"05-new.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico sluice-cni",
			"20-b.conflist": "flannel",
		},
	},
	"a plain configuration that sorts before the primary one": {
		do: func(tn *testNode) { tn.put("conf/05-new.conf", plainBridge) },
		want: map[string]string{
			"05-new.conflist": "bridge sluice-cni", "10-a.conflist": "calico sluice-cni",
			"20-b.conflist": "flannel",
		},
	},
	"the primary configuration is deleted": {
		do:   func(tn *testNode) { tn.remove("conf/10-a.conflist") },
		want: map[string]string{"20-b.conflist": "flannel sluice-cni"},
	},
	"the primary configuration is renamed": {
		do: func(tn *testNode) {
			tn.must(os.Rename(tn.path("conf/10-a.conflist"), tn.path("conf/30-a.conflist")))
		},
		want: map[string]string{
			"20-b.conflist": "flannel sluice-cni", "30-a.conflist": "calico sluice-cni",
		},
	},
	"the primary configuration is renamed to a backup": {
		do: func(tn *testNode) {
			tn.must(os.Rename(tn.path("conf/10-a.conflist"), tn.path("conf/10-a.conflist.cilium_bak")))
		},
		want: map[string]string{
			"10-a.conflist.cilium_bak": "calico sluice-cni", "20-b.conflist": "flannel sluice-cni",
		},
	},
	"the primary configuration is rewritten": {
		do: func(tn *testNode) { tn.put("conf/10-a.conflist", list("calico", "bandwidth")) },
		want: map[string]string{
			"10-a.conflist": "calico bandwidth sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"the primary configuration is written in place": {
		do: func(tn *testNode) {
			// The new content has the length of the old content, and one call writes it: while the
			// file is incomplete, the plugin would be inserted into 20-b.conflist too.
			f, err := os.OpenFile(tn.path("conf/10-a.conflist"), os.O_WRONLY, 0)
			tn.must(err)
			content := list("calico", "tuning")
			padding := len(tn.read("conf/10-a.conflist")) - len(content)
			_, err = f.WriteString(content + strings.Repeat("\n", padding))
			tn.must(err)
			tn.must(f.Close())
		},
		want: map[string]string{
			"10-a.conflist": "calico tuning sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"a plugin is appended after Sluice's": {
		do: func(tn *testNode) { tn.put("conf/10-a.conflist", list("calico", "sluice-cni", "tuning")) },
		want: map[string]string{
			"10-a.conflist": "calico tuning sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"Sluice's element is changed": {
		do: func(tn *testNode) {
			tn.put("conf/10-a.conflist",
				strings.Replace(tn.read("conf/10-a.conflist"), `"info"`, `"error"`, 1))
		},
		want: map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
	},
	"Sluice's element is duplicated": {
		do: func(tn *testNode) {
			tn.put("conf/10-a.conflist", list("calico", "sluice-cni", "sluice-cni"))
		},
		want: map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
	},
	"the executable is deleted": {do: func(tn *testNode) {
		tn.remove("bin/sluice-cni")
	}, want: asBefore},
	"the executable is overwritten": {do: func(tn *testNode) {
		tn.putExecutable("sluice-cni", "something else")
	}, want: asBefore},
	"the executable is made not executable": {do: func(tn *testNode) {
		tn.must(os.Chmod(tn.path("bin/sluice-cni"), 0o644))
	}, want: asBefore},
	"the directory is created again": {
		do: func(tn *testNode) {
			tn.must(os.Rename(tn.path("conf"), tn.path("old")))
			tn.put("conf/10-a.conflist", list("calico"))
		},
		want: map[string]string{"10-a.conflist": "calico sluice-cni"},
	},
	"the owned configuration is deleted": {
		settings: owned,
		do:       func(tn *testNode) { tn.remove("conf/02-istio-cni.conflist") },
		want: map[string]string{
			"02-istio-cni.conflist": "calico sluice-cni", "10-a.conflist": "calico",
			"20-b.conflist": "flannel",
		},
	},
	"the original of the owned configuration changes": {
		settings: owned,
		do:       func(tn *testNode) { tn.put("conf/10-a.conflist", list("calico", "bandwidth")) },
		want: map[string]string{
			"02-istio-cni.conflist": "calico bandwidth sluice-cni",
			"10-a.conflist":         "calico bandwidth", "20-b.conflist": "flannel",
		},
	},
	"the original of the owned configuration is deleted": {
		settings: owned,
		do:       func(tn *testNode) { tn.remove("conf/10-a.conflist") },
		want: map[string]string{
			"02-istio-cni.conflist": "flannel sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"the stand-alone configuration is changed": {
		settings: func(s *node.Settings) { s.Chained = false },
		do: func(tn *testNode) {
			tn.put("conf/YYY-sluice-cni.conf", `{"name":"x","type":"sluice-cni"}`)
		},
		want: map[string]string{
			"10-a.conflist": "calico", "20-b.conflist": "flannel",
			"YYY-sluice-cni.conf": "plain sluice-cni",
		},
	},
	"the target of a link is rewritten": {
		before: addLink,
		do:     func(tn *testNode) { tn.put("elsewhere/calico", list("calico", "bandwidth")) },
		want: map[string]string{
			"05-link.conflist": "calico bandwidth sluice-cni", "10-a.conflist": "calico",
			"20-b.conflist": "flannel",
		},
	},
	"the target of a link is replaced with another link": {
		before: addLink,
		do: func(tn *testNode) {
			tn.put("elsewhere/next/calico", list("cilium-cni"))
			tn.must(os.Symlink("next/calico", tn.path("elsewhere/new")))
			tn.must(os.Rename(tn.path("elsewhere/new"), tn.path("elsewhere/calico")))
		},
		want: map[string]string{
			"05-link.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico",
			"20-b.conflist": "flannel",
		},
	},
}

// addLink adds a link before the other configurations, to a file in another directory.
func addLink(tn *testNode) {
	tn.put("elsewhere/calico", list("calico"))
	tn.must(os.Symlink("../elsewhere/calico", tn.path("conf/05-link.conflist")))
}

// runUntilIdle runs a node in the case's initial state, and waits for the first status, after which
// the node has nothing to change.
func (tn *testNode) runUntilIdle(c changeCase) (*node.Node, <-chan node.Status) {
	tn.t.Helper()
	tn.putAll(map[string]string{
		"conf/10-a.conflist": list("calico"), "conf/20-b.conflist": list("flannel"),
	})
	tn.settings.Resync = time.Hour
	if c.before != nil {
		c.before(tn)
	}
	if c.settings != nil {
		c.settings(&tn.settings)
	}
	tn.mustBeInstalled(tn.reconcile()) // otherwise the node's own writes would be the event
	n := tn.node()
	statuses := tn.runNode(n)
	await(tn.t, statuses, "the plugin is installed", node.Status.Installed)
	return n, statuses
}

// isCorrected returns a function that reports whether the change was corrected.
func (c changeCase) isCorrected(tn *testNode) func(node.Status) bool {
	return func(s node.Status) bool {
		return s.Installed() && maps.Equal(tn.chains(), c.want) && tn.elementIs(elementV1) &&
			tn.executableIs(pluginV1)
	}
}
