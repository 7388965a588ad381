package node_test

import (
	"os"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

// A changeCase is a foreign change to a maintained node, with the expected result.
type changeCase struct {
	settings func(s *node.Settings)
	before   func(b *testNode)
	do       func(b *testNode)
	want     map[string]string
}

var changeCases = map[string]changeCase{
	"a configuration that comes before the primary one": {
		do: func(b *testNode) { b.put("conf/05-new.conflist", list("cilium-cni")) },
		want: map[string]string{
			"05-new.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico sluice-cni",
			"20-b.conflist": "flannel",
		},
	},
	"a plain configuration that comes before": {
		do: func(b *testNode) { b.put("conf/05-new.conf", plainBridge) },
		want: map[string]string{
			"05-new.conflist": "bridge sluice-cni", "10-a.conflist": "calico sluice-cni",
			"20-b.conflist": "flannel",
		},
	},
	"the primary configuration is deleted": {
		do:   func(b *testNode) { b.remove("conf/10-a.conflist") },
		want: map[string]string{"20-b.conflist": "flannel sluice-cni"},
	},
	"the primary configuration is renamed": {
		do: func(b *testNode) {
			b.must(os.Rename(b.path("conf/10-a.conflist"), b.path("conf/30-a.conflist")))
		},
		want: map[string]string{
			"20-b.conflist": "flannel sluice-cni", "30-a.conflist": "calico sluice-cni",
		},
	},
	"the primary configuration is renamed to a backup": {
		do: func(b *testNode) {
			b.must(os.Rename(b.path("conf/10-a.conflist"), b.path("conf/10-a.conflist.cilium_bak")))
		},
		want: map[string]string{
			"10-a.conflist.cilium_bak": "calico sluice-cni", "20-b.conflist": "flannel sluice-cni",
		},
	},
	"the primary configuration is rewritten": {
		do: func(b *testNode) { b.put("conf/10-a.conflist", list("calico", "bandwidth")) },
		want: map[string]string{
			"10-a.conflist": "calico bandwidth sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"the primary configuration is written in place": {
		do: func(b *testNode) {
			b.must(os.WriteFile(b.path("conf/10-a.conflist"), []byte(list("calico", "tuning")),
				0o644))
		},
		want: map[string]string{
			"10-a.conflist": "calico tuning sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"a plugin is appended after Sluice's": {
		do: func(b *testNode) { b.put("conf/10-a.conflist", list("calico", "sluice-cni", "tuning")) },
		want: map[string]string{
			"10-a.conflist": "calico tuning sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"Sluice's entry is changed": {
		do: func(b *testNode) {
			b.put("conf/10-a.conflist",
				strings.Replace(b.read("conf/10-a.conflist"), `"info"`, `"error"`, 1))
		},
		want: map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
	},
	"Sluice's entry is duplicated": {
		do: func(b *testNode) {
			b.put("conf/10-a.conflist", list("calico", "sluice-cni", "sluice-cni"))
		},
		want: map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conflist": "flannel"},
	},
	"the executable is deleted": {do: func(b *testNode) {
		b.remove("bin/sluice-cni")
	}, want: asBefore},
	"the executable is overwritten": {do: func(b *testNode) {
		b.executable("sluice-cni", "something else")
	}, want: asBefore},
	"the executable is made not executable": {do: func(b *testNode) {
		b.must(os.Chmod(b.path("bin/sluice-cni"), 0o644))
	}, want: asBefore},
	"the directory is created again": {
		do: func(b *testNode) {
			b.must(os.Rename(b.path("conf"), b.path("old")))
			b.put("conf/10-a.conflist", list("calico"))
		},
		want: map[string]string{"10-a.conflist": "calico sluice-cni"},
	},
	"the owned configuration is deleted": {
		settings: owned,
		do:       func(b *testNode) { b.remove("conf/02-istio-cni.conflist") },
		want: map[string]string{
			"02-istio-cni.conflist": "calico sluice-cni", "10-a.conflist": "calico",
			"20-b.conflist": "flannel",
		},
	},
	"the original of the owned configuration changes": {
		settings: owned,
		do:       func(b *testNode) { b.put("conf/10-a.conflist", list("calico", "bandwidth")) },
		want: map[string]string{
			"02-istio-cni.conflist": "calico bandwidth sluice-cni",
			"10-a.conflist":         "calico bandwidth", "20-b.conflist": "flannel",
		},
	},
	"the original of the owned configuration is deleted": {
		settings: owned,
		do:       func(b *testNode) { b.remove("conf/10-a.conflist") },
		want: map[string]string{
			"02-istio-cni.conflist": "flannel sluice-cni", "20-b.conflist": "flannel",
		},
	},
	"the stand-alone configuration is changed": {
		settings: func(s *node.Settings) { s.Chained = false },
		do: func(b *testNode) {
			b.put("conf/YYY-sluice-cni.conf", `{"name":"x","type":"sluice-cni"}`)
		},
		want: map[string]string{
			"10-a.conflist": "calico", "20-b.conflist": "flannel",
			"YYY-sluice-cni.conf": "plain sluice-cni",
		},
	},
	"the target of a link is rewritten": {
		before: linked,
		do:     func(b *testNode) { b.put("elsewhere/calico", list("calico", "bandwidth")) },
		want: map[string]string{
			"05-link.conflist": "calico bandwidth sluice-cni", "10-a.conflist": "calico",
			"20-b.conflist": "flannel",
		},
	},
	"the directory on the path of a link is replaced": {
		before: linked,
		do: func(b *testNode) {
			b.put("elsewhere/next/calico", list("cilium-cni"))
			b.must(os.Symlink("next/calico", b.path("elsewhere/new")))
			b.must(os.Rename(b.path("elsewhere/new"), b.path("elsewhere/calico")))
		},
		want: map[string]string{
			"05-link.conflist": "cilium-cni sluice-cni", "10-a.conflist": "calico",
			"20-b.conflist": "flannel",
		},
	},
}

// linked adds a link before the other configurations, to a file in another directory.
func linked(b *testNode) {
	b.put("elsewhere/calico", list("calico"))
	b.must(os.Symlink("../elsewhere/calico", b.path("conf/05-link.conflist")))
}

// changed runs a node to which the change will be made, and waits until it is installed and idle.
func (b *testNode) changed(d changeCase) (*node.Node, <-chan node.Status) {
	b.t.Helper()
	b.putAll(map[string]string{
		"conf/10-a.conflist": list("calico"), "conf/20-b.conflist": list("flannel"),
	})
	b.settings.Resync = time.Hour
	if d.before != nil {
		d.before(b)
	}
	if d.settings != nil {
		d.settings(&b.settings)
	}
	b.installed(b.reconcile()) // otherwise the node's own writes would be the event
	n := b.node()
	statuses := b.running(n)
	await(b.t, statuses, "installed", node.Status.Installed)
	return n, statuses
}

// isCorrected reports whether the change was corrected.
func (d changeCase) isCorrected(b *testNode) func(node.Status) bool {
	return func(s node.Status) bool {
		return s.Installed() && equal(b.chains(), d.want) && b.elementIs(elementV1) &&
			b.executableIs(pluginV1)
	}
}
