package node_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/node"
)

// Each row is a node as it may be found, what becomes of it, and by that the promise that
// uninstalling restores each byte.
func TestInstall(t *testing.T) {
	for name, row := range map[string]struct {
		settings func(s *node.Settings)
		before   map[string]string
		after    map[string]string // chains; nil: as before
		reasons  []node.Reason
		blocked  bool
	}{
		"the first list gets the plugin": {
			before: map[string]string{
				"10-a.conflist": list("calico", "portmap"), "20-b.conflist": list("other"),
			},
			after: map[string]string{
				"10-a.conflist": "calico portmap sluice-cni", "20-b.conflist": "other",
			},
		},
		"a plain configuration becomes a list": {
			before: map[string]string{"10-a.conf": plainBridge},
			after:  map[string]string{"10-a.conflist": "bridge sluice-cni"},
		},
		"beside a list of the same name too": {
			before: map[string]string{"10-a.conf": plainBridge, "10-a.conflist": list("other")},
			after: map[string]string{
				"10-a.conf-sluice.conflist": "bridge sluice-cni", "10-a.conflist": "other",
			},
		},
		"one that ends in json too": {
			before: map[string]string{"10-a.json": plainBridge},
			after:  map[string]string{"10-a.conflist": "bridge sluice-cni"},
		},
		"the named list gets the plugin": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": `{"name":"m","cniVersion":"0.3.1","type":"multus"}`,
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.NotInUse},
		},
		"also behind a Multus that delegates to it": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"clusterNetwork":"/host/etc/cni/net.d/20-b.conflist"`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
		},
		"behind a Multus that delegates to another one no pod comes to it": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"clusterNetwork":"30-c.conflist"`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.NotInUse}, blocked: true,
		},
		"behind a Multus with a copy of what it was no pod comes to it": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"delegates":[` + list("calico") + `]`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.NotInUse}, blocked: true,
		},
		"the named list gets the plugin, though another comes before it": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"10-a.conflist": list("cilium-cni"), "20-b.conflist": list("calico"),
			},
			after: map[string]string{
				"10-a.conflist": "cilium-cni", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.NotInUse}, blocked: true,
		},
		"a named one that is missing is waited for": {
			settings: named("20-b.conflist"),
			before:   map[string]string{"10-a.conflist": list("calico")},
			reasons:  []node.Reason{node.NoConfiguration}, blocked: true,
		},
		"without a configuration one is waited for": {
			before: map[string]string{}, reasons: []node.Reason{node.NoConfiguration},
			blocked: true,
		},
		"what is not valid stops the runtime, and the next one has the plugin already": {
			before: map[string]string{"05-x.conflist": "{", "10-a.conflist": list("calico")},
			after: map[string]string{
				"05-x.conflist": "not valid", "10-a.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.Unreadable}, blocked: true,
		},
		"also before the named one": {
			settings: named("10-a.conflist"),
			before:   map[string]string{"05-x.conf": "{}", "10-a.conflist": list("calico")},
			after: map[string]string{
				"05-x.conf": "not valid", "10-a.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.Unreadable}, blocked: true,
		},
		"the named one, though others use the name of its list": {
			settings: named("10-a.conf"),
			before:   map[string]string{"10-a.conf": plainBridge, "10-a.conflist": list("other")},
			after: map[string]string{
				"10-a.conf-sluice.conflist": "bridge sluice-cni", "10-a.conflist": "other",
			},
		},
		"no runtime comes to the other form of the named one": {
			settings: named("10-a.conflist"),
			before:   map[string]string{"10-a.conf": plainBridge, "10-a.conflist": "{"},
			after: map[string]string{
				"10-a.conf-sluice.conflist": "bridge sluice-cni", "10-a.conflist": "not valid",
			},
			reasons: []node.Reason{node.Unreadable},
		},
		"what comes after the one in use does not matter": {
			before: map[string]string{"10-a.conflist": list("calico"), "20-x.conflist": "{"},
			after: map[string]string{
				"10-a.conflist": "calico sluice-cni", "20-x.conflist": "not valid",
			},
		},
		"what is not valid after our own configuration is told": {
			settings: owned,
			before:   map[string]string{"05-x.conflist": "{", "10-a.conflist": list("calico")},
			after: map[string]string{
				"02-istio-cni.conflist": "calico sluice-cni", "05-x.conflist": "not valid",
				"10-a.conflist": "calico",
			},
			reasons: []node.Reason{node.Unreadable},
		},
		"before our own configuration it stops the runtime": {
			settings: owned,
			before:   map[string]string{"01-x.conflist": "{", "10-a.conflist": list("calico")},
			after: map[string]string{
				"01-x.conflist": "not valid", "02-istio-cni.conflist": "calico sluice-cni",
				"10-a.conflist": "calico",
			},
			reasons: []node.Reason{node.Unreadable}, blocked: true,
		},
		"our own configuration of the named one comes before all": {
			settings: func(s *node.Settings) {
				s.IstioOwnedCNIConfig, s.CNIConfFileName = true, "20-b.conflist"
			},
			before: map[string]string{"10-a.conflist": list("a"), "20-b.conflist": list("b")},
			after: map[string]string{
				"02-istio-cni.conflist": "b sluice-cni", "10-a.conflist": "a", "20-b.conflist": "b",
			},
		},
		"a list without chains is left alone": {
			before: map[string]string{
				"10-a.conflist": `{"name":"n","plugins":[{"type":"bridge"}]}`,
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"a list whose plugins are in a folder cannot be served": {
			before: map[string]string{
				"05-a.conflist": `{"cniVersion":"1.1.0","name":"folder"}`,
				"10-a.conflist": list("calico"),
			},
			after: map[string]string{
				"05-a.conflist": "not valid", "10-a.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"plugins of a folder come behind ours": {
			before: map[string]string{
				"10-a.conflist": list("calico"), "net/50-more.conf": plainBridge,
			},
			after:   map[string]string{"10-a.conflist": "calico sluice-cni"},
			reasons: []node.Reason{node.NotChainable},
		},
		"our own configuration comes first": {
			settings: func(s *node.Settings) { s.IstioOwnedCNIConfig = true },
			before:   map[string]string{"05-cilium.conflist": list("cilium-cni")},
			after: map[string]string{
				"02-istio-cni.conflist": "cilium-cni sluice-cni",
				"05-cilium.conflist":    "cilium-cni",
			},
		},
		"our own configuration of a plain one": {
			settings: func(s *node.Settings) {
				s.IstioOwnedCNIConfig, s.IstioOwnedCNIConfigFileName = true, "00-ours.conflist"
			},
			before: map[string]string{"10-a.conf": plainBridge},
			after: map[string]string{
				"00-ours.conflist": "bridge sluice-cni", "10-a.conf": "plain bridge",
			},
		},
		"what comes before our own configuration gets the plugin as well": {
			settings: func(s *node.Settings) { s.IstioOwnedCNIConfig = true },
			before:   map[string]string{"01-x.conflist": list("a"), "10-a.conflist": list("b")},
			after: map[string]string{
				"01-x.conflist": "a sluice-cni", "02-istio-cni.conflist": "a sluice-cni",
				"10-a.conflist": "b",
			},
			reasons: []node.Reason{node.Preempted},
		},
		"our own name is taken": {
			settings: func(s *node.Settings) { s.IstioOwnedCNIConfig = true },
			before: map[string]string{
				"02-istio-cni.conflist": list("a"), "10-a.conflist": list("b"),
			},
			after: map[string]string{
				"02-istio-cni.conflist": "a sluice-cni", "10-a.conflist": "b",
			},
			reasons: []node.Reason{node.NameTaken},
		},
		"a configuration for Multus": {
			settings: func(s *node.Settings) { s.Chained = false },
			before:   map[string]string{"10-a.conflist": list("ovn-k8s-cni-overlay")},
			after: map[string]string{
				"10-a.conflist": "ovn-k8s-cni-overlay", "YYY-sluice-cni.conf": "plain sluice-cni",
			},
		},
		"a configuration for Multus in the place of istio-cni's": {
			settings: func(s *node.Settings) {
				s.Chained, s.CNIConfFileName = false, "istio-cni.conf"
			},
			before: map[string]string{
				"istio-cni.conf": `{"cniVersion":"0.3.1","name":"istio-cni","type":"istio-cni"}`,
			},
			after: map[string]string{"istio-cni.conf": "plain sluice-cni"},
		},
		"a name for Multus that others use": {
			settings: func(s *node.Settings) { s.Chained, s.CNIConfFileName = false, "10-a.conf" },
			before:   map[string]string{"10-a.conf": plainBridge},
			reasons:  []node.Reason{node.NameTaken}, blocked: true,
		},
		"istio-cni makes room": {
			before: map[string]string{"10-a.conflist": list("calico", "istio-cni", "portmap")},
			after:  map[string]string{"10-a.conflist": "calico portmap sluice-cni"},
		},
		"istio-cni stays for ambient mode": {
			before: map[string]string{
				"10-a.conflist": `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"},{"type":"istio-cni","ambient_enabled":true}]}`,
			},
			after:   map[string]string{"10-a.conflist": "a istio-cni sluice-cni"},
			reasons: []node.Reason{node.OtherPluginStays},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNode(t)
			b.executable("istio-cni", "istio's plugin")
			for name, content := range row.before {
				b.put("conf/"+name, content)
			}
			if row.settings != nil {
				row.settings(&b.settings)
			}
			before, chains := b.everything(), b.chains()
			status := b.reconcile()
			if diff := cmp.Diff(row.reasons, reasons(status)); diff != "" ||
				status.Installed() == row.blocked {
				t.Errorf("installed %t, want %t; problems %v; reasons (-want +got):\n%s",
					status.Installed(), !row.blocked, status.Problems, diff)
			}
			if row.after == nil {
				row.after = chains
			}
			b.wantChains(row.after)
			if got := b.read("bin/sluice-cni"); got != pluginV1 {
				t.Errorf("the executable has %d bytes, want %d", len(got), len(pluginV1))
			}
			installed := b.everything()
			again := b.reconcile()
			if len(again.Changes) != 0 || cmp.Diff(installed, b.everything()) != "" {
				t.Errorf("a second pass changed %v", again.Changes)
			}
			if again.Installed() == row.blocked {
				t.Errorf("a second pass found: installed %t, %v", again.Installed(), again.Problems)
			}
			if report := b.uninstall(); len(report.Left) != 0 {
				t.Errorf("left: %v", report.Left)
			}
			b.restored(before)
		})
	}
}

func named(file string) func(s *node.Settings) {
	return func(s *node.Settings) { s.CNIConfFileName = file }
}

// multus is a configuration as Multus' daemon writes it.
func multus(network string) string {
	return `{"name":"multus-cni-network","cniVersion":"0.3.1","type":"multus-shim",` + network + `}`
}

func TestSettingsThatCannotBe(t *testing.T) {
	b := newTestNode(t)
	for why, spoil := range map[string]func(s *node.Settings){
		"a relative directory": func(s *node.Settings) { s.CNIConfDir = "conf" },
		"no state directory":   func(s *node.Settings) { s.StateDir = "" },
		"a path for a name": func(s *node.Settings) {
			s.CNIConfFileName = "../10-a.conflist"
		},
		"our own file is not a list": func(s *node.Settings) {
			s.IstioOwnedCNIConfigFileName = "02-istio-cni.conf"
		},
		"a list that stands alone": func(s *node.Settings) {
			s.Chained, s.CNIConfFileName = false, "x.conflist"
		},
		"an element of another type": func(s *node.Settings) {
			s.Element = json.RawMessage(`{"type":"other"}`)
		},
		"an element that is no object": func(s *node.Settings) {
			s.Element = json.RawMessage(`[]`)
		},
		"no executable for the plugin": func(s *node.Settings) { s.Binaries = nil },
		"it shall replace itself": func(s *node.Settings) {
			s.ReplacedTypes = []string{"sluice-cni"}
		},
	} {
		s := b.settings
		spoil(&s)
		if _, err := node.New(s, node.Options{}); err == nil {
			t.Errorf("%s: no error", why)
		}
	}
}
