package node_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/node"
)

// TestInstall covers initial states of a node. It checks the result of the installation, and that
// uninstallation restores each byte.
func TestInstall(t *testing.T) {
	for name, row := range map[string]struct {
		settings func(s *node.Settings)
		before   map[string]string
		after    map[string]string // expected chains; nil: unchanged
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
		"a plain configuration is converted to a list": {
			before: map[string]string{"10-a.conf": plainBridge},
			after:  map[string]string{"10-a.conflist": "bridge sluice-cni"},
		},
		"a list of the same name as the first plain configuration is kept": {
			before: map[string]string{"10-a.conf": plainBridge, "10-a.conflist": list("other")},
			after: map[string]string{
				"10-a.conf-sluice.conflist": "bridge sluice-cni", "10-a.conflist": "other",
			},
		},
		"a plain configuration with the extension json is converted to a list": {
			before: map[string]string{"10-a.json": plainBridge},
			after:  map[string]string{"10-a.conflist": "bridge sluice-cni"},
		},
		"the configured list gets the plugin": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": `{"name":"m","cniVersion":"0.3.1","type":"multus"}`,
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.ConfigurationNotInUse},
		},
		"the configured list gets the plugin if Multus, which sorts first, delegates to this list": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"clusterNetwork":"/host/etc/cni/net.d/20-b.conflist"`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
		},
		"the configured list gets the plugin if Multus, which sorts first, delegates to a file elsewhere": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"clusterNetwork":"/etc/cni/multus/net.d/20-b.conflist"`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.ConfigurationNotInUse},
		},
		"no pod uses the configured list if Multus, which sorts first, delegates to another list": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"clusterNetwork":"/etc/cni/net.d/30-c.conflist"`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.ConfigurationNotInUse}, blocked: true,
		},
		"no pod uses the configured list if Multus, which sorts first, has an old copy of it": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"delegates":[` + list("calico") + `]`),
				"20-b.conflist":  list("calico"),
			},
			after: map[string]string{
				"00-multus.conf": "plain multus-shim", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.ConfigurationNotInUse}, blocked: true,
		},
		"the configured list gets the plugin although another list sorts first": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"10-a.conflist": list("cilium-cni"), "20-b.conflist": list("calico"),
			},
			after: map[string]string{
				"10-a.conflist": "cilium-cni", "20-b.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.ConfigurationNotInUse}, blocked: true,
		},
		"the node is not ready while the configured list is missing and another list is in use": {
			settings: named("20-b.conflist"),
			before:   map[string]string{"10-a.conflist": list("calico")},
			reasons:  []node.Reason{node.ConfigurationNotInUse}, blocked: true,
		},
		"no pod starts while Multus, which sorts first, delegates to the configured list, which is missing": {
			settings: named("20-b.conflist"),
			before: map[string]string{
				"00-multus.conf": multus(`"clusterNetwork":"/host/etc/cni/net.d/20-b.conflist"`),
			},
			reasons: []node.Reason{node.NoNetworkConfiguration}, blocked: true,
		},
		"the node is not ready while there is no configuration": {
			before: map[string]string{}, reasons: []node.Reason{node.NoNetworkConfiguration},
			blocked: true,
		},
		"an invalid file stops the runtime, and the next file has the plugin": {
			before: map[string]string{"05-x.conflist": "{", "10-a.conflist": list("calico")},
			after: map[string]string{
				"05-x.conflist": "not valid", "10-a.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"an invalid file before the configured one stops the runtime": {
			settings: named("10-a.conflist"),
			before:   map[string]string{"05-x.conf": "{}", "10-a.conflist": list("calico")},
			after: map[string]string{
				"05-x.conf": "not valid", "10-a.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"the list of a plain configuration sorts before the next file": {
			before: map[string]string{
				"10-a.conf": plainBridge, "10-a.conf-old.conflist": list("other"),
			},
			after: map[string]string{
				"10-a.conf--sluice.conflist": "bridge sluice-cni", "10-a.conf-old.conflist": "other",
			},
		},
		"a list of the same name as the configured plain configuration is kept": {
			settings: named("10-a.conf"),
			before:   map[string]string{"10-a.conf": plainBridge, "10-a.conflist": list("other")},
			after: map[string]string{
				"10-a.conf-sluice.conflist": "bridge sluice-cni", "10-a.conflist": "other",
			},
		},
		"the plain configuration of the same name is used if the configured list is invalid": {
			settings: named("10-a.conflist"),
			before:   map[string]string{"10-a.conf": plainBridge, "10-a.conflist": "{"},
			after: map[string]string{
				"10-a.conf-sluice.conflist": "bridge sluice-cni", "10-a.conflist": "not valid",
			},
			reasons: []node.Reason{node.InvalidConfiguration},
		},
		"files after the one in use are ignored": {
			before: map[string]string{"10-a.conflist": list("calico"), "20-x.conflist": "{"},
			after: map[string]string{
				"10-a.conflist": "calico sluice-cni", "20-x.conflist": "not valid",
			},
		},
		"an invalid file after the owned configuration is reported": {
			settings: owned,
			before:   map[string]string{"05-x.conflist": "{", "10-a.conflist": list("calico")},
			after: map[string]string{
				"02-istio-cni.conflist": "calico sluice-cni", "05-x.conflist": "not valid",
				"10-a.conflist": "calico",
			},
			reasons: []node.Reason{node.InvalidConfiguration},
		},
		"an invalid file before the owned configuration stops the runtime": {
			settings: owned,
			before:   map[string]string{"01-x.conflist": "{", "10-a.conflist": list("calico")},
			after: map[string]string{
				"01-x.conflist": "not valid", "02-istio-cni.conflist": "calico sluice-cni",
				"10-a.conflist": "calico",
			},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"the owned configuration of the configured list comes first": {
			settings: func(s *node.Settings) {
				s.IstioOwnedCNIConfig, s.CNIConfFileName = true, "20-b.conflist"
			},
			before: map[string]string{"10-a.conflist": list("a"), "20-b.conflist": list("b")},
			after: map[string]string{
				"02-istio-cni.conflist": "b sluice-cni", "10-a.conflist": "a", "20-b.conflist": "b",
			},
		},
		"a list without a version, which does not support chains, is not changed": {
			before: map[string]string{
				"10-a.conflist": `{"name":"n","plugins":[{"type":"bridge"}]}`,
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"a list with a version that the plugin does not support is not changed": {
			before: map[string]string{
				"10-a.conflist": `{"cniVersion":"1.2.0","name":"n","plugins":[{"type":"bridge"}]}`,
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"a list whose versions only newer runtimes read is not changed": {
			before: map[string]string{
				"10-a.conflist": `{"cniVersions":["0.4.0","1.0.0"],"name":"n","plugins":[{"type":"bridge"}]}`,
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"a list with several versions gets the plugin": {
			before: map[string]string{
				"10-a.conflist": `{"cniVersion":"0.4.0","cniVersions":["0.4.0","1.1.0","2.0.0"],` +
					`"name":"n","plugins":[{"type":"bridge"}]}`,
			},
			after: map[string]string{"10-a.conflist": "bridge sluice-cni"},
		},
		"a plain configuration with a version that the plugin does not support is not changed": {
			before: map[string]string{
				"10-a.conf": `{"cniVersion":"1.2.0","name":"n","type":"bridge"}`,
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"a list whose plugins are in a directory is not supported": {
			before: map[string]string{
				"05-a.conflist": `{"cniVersion":"1.1.0","name":"folder"}`,
				"10-a.conflist": list("calico"),
			},
			after: map[string]string{
				"05-a.conflist": "not valid", "10-a.conflist": "calico sluice-cni",
			},
			reasons: []node.Reason{node.NotChainable}, blocked: true,
		},
		"plugins of a directory come after Sluice's": {
			before: map[string]string{
				"10-a.conflist": list("calico"), "net/50-more.conf": plainBridge,
			},
			after:   map[string]string{"10-a.conflist": "calico sluice-cni"},
			reasons: []node.Reason{node.NotChainable},
		},
		"runtimes do not use a list with an invalid file in its directory of plugins": {
			before: map[string]string{
				"10-a.conflist": list("calico"), "net/50-more.conf": `{"name":"more"}`,
				"20-b.conflist": list("bridge"),
			},
			after: map[string]string{
				"10-a.conflist": "calico sluice-cni", "20-b.conflist": "bridge",
			},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"runtimes do not use the list of a plain configuration with an invalid file in its directory of plugins": {
			before:  map[string]string{"10-a.conf": plainBridge, "lab/50-more.conf": "{"},
			after:   map[string]string{"10-a.conflist": "bridge sluice-cni"},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"the node is not ready if every ADD fails because of the name of the network": {
			before:  map[string]string{"10-a.conflist": networkList("x/.."), "20-b.conf": "null"},
			after:   map[string]string{"10-a.conflist": "calico sluice-cni", "20-b.conf": "not valid"},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"the node is not ready if the name of the network is too long": {
			before:  map[string]string{"10-a.conflist": networkList(strings.Repeat("x", 300))},
			after:   map[string]string{"10-a.conflist": "calico sluice-cni"},
			reasons: []node.Reason{node.InvalidConfiguration}, blocked: true,
		},
		"an empty name of the network, which CRI-O allows, is only reported": {
			before:  map[string]string{"10-a.conflist": networkList("")},
			after:   map[string]string{"10-a.conflist": "calico sluice-cni"},
			reasons: []node.Reason{node.InvalidConfiguration},
		},
		"the directory of plugins has no effect on a list that loads none": {
			before: map[string]string{
				"10-a.conflist": `{"cniVersion":"1.1.0","name":"net","loadOnlyInlinedPlugins":true,` +
					`"plugins":[{"type":"calico"}]}`,
				"net/50-more.conf": "{",
			},
			after: map[string]string{"10-a.conflist": "calico sluice-cni"},
		},
		"the owned configuration comes first": {
			settings: owned,
			before:   map[string]string{"05-cilium.conflist": list("cilium-cni")},
			after: map[string]string{
				"02-istio-cni.conflist": "cilium-cni sluice-cni",
				"05-cilium.conflist":    "cilium-cni",
			},
		},
		"the owned configuration of a plain configuration has the configured name": {
			settings: func(s *node.Settings) {
				s.IstioOwnedCNIConfig, s.IstioOwnedCNIConfigFileName = true, "00-sluice.conflist"
			},
			before: map[string]string{"10-a.conf": plainBridge},
			after: map[string]string{
				"00-sluice.conflist": "bridge sluice-cni", "10-a.conf": "plain bridge",
			},
		},
		"a file before the owned configuration gets the plugin too": {
			settings: owned,
			before:   map[string]string{"01-x.conflist": list("a"), "10-a.conflist": list("b")},
			after: map[string]string{
				"01-x.conflist": "a sluice-cni", "02-istio-cni.conflist": "a sluice-cni",
				"10-a.conflist": "b",
			},
			reasons: []node.Reason{node.Preempted},
		},
		"a foreign file with the owned name gets the plugin": {
			settings: owned,
			before: map[string]string{
				"02-istio-cni.conflist": list("a"), "10-a.conflist": list("b"),
			},
			after: map[string]string{
				"02-istio-cni.conflist": "a sluice-cni", "10-a.conflist": "b",
			},
			reasons: []node.Reason{node.FileNameTaken},
		},
		"a stand-alone configuration for Multus changes no other file": {
			settings: func(s *node.Settings) { s.Chained = false },
			before:   map[string]string{"10-a.conflist": list("ovn-k8s-cni-overlay")},
			after: map[string]string{
				"10-a.conflist": "ovn-k8s-cni-overlay", "YYY-sluice-cni.conf": "plain sluice-cni",
			},
		},
		"a stand-alone configuration that replaces istio-cni's": {
			settings: func(s *node.Settings) {
				s.Chained, s.CNIConfFileName = false, "istio-cni.conf"
			},
			before: map[string]string{
				"istio-cni.conf": `{"cniVersion":"0.3.1","name":"istio-cni","type":"istio-cni"}`,
			},
			after: map[string]string{"istio-cni.conf": "plain sluice-cni"},
		},
		"a foreign file with the name of the stand-alone configuration is not changed": {
			settings: func(s *node.Settings) { s.Chained, s.CNIConfFileName = false, "10-a.conf" },
			before:   map[string]string{"10-a.conf": plainBridge},
			reasons:  []node.Reason{node.FileNameTaken}, blocked: true,
		},
		"istio-cni is replaced": {
			before: map[string]string{"10-a.conflist": list("calico", "istio-cni", "portmap")},
			after:  map[string]string{"10-a.conflist": "calico portmap sluice-cni"},
		},
		"istio-cni is kept for ambient mode": {
			before: map[string]string{
				"10-a.conflist": `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"},{"type":"istio-cni","ambient_enabled":true}]}`,
			},
			after:   map[string]string{"10-a.conflist": "a istio-cni sluice-cni"},
			reasons: []node.Reason{node.OtherPluginStays},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.putExecutable("istio-cni", "istio's plugin")
			for name, content := range row.before {
				tn.put("conf/"+name, content)
			}
			if row.settings != nil {
				row.settings(&tn.settings)
			}
			before, chains := tn.filesToRestore(), tn.chains()
			status := tn.reconcile()
			if diff := cmp.Diff(row.reasons, reasons(status)); diff != "" ||
				status.Installed() == row.blocked {
				t.Errorf("installed %t, want %t; problems %v; reasons (-want +got):\n%s",
					status.Installed(), !row.blocked, status.Problems, diff)
			}
			if row.after == nil {
				row.after = chains
			}
			tn.wantChains(row.after)
			if got := tn.read("bin/sluice-cni"); got != pluginV1 {
				t.Errorf("the executable has %d bytes, want %d", len(got), len(pluginV1))
			}
			installed := tn.filesToRestore()
			second := tn.reconcile()
			if len(second.Changes) != 0 || cmp.Diff(installed, tn.filesToRestore()) != "" {
				t.Errorf("a second reconciliation changed %v, want no change", second.Changes)
			}
			if second.Installed() == row.blocked {
				t.Errorf("after a second reconciliation: installed %t, want %t; problems %v",
					second.Installed(), !row.blocked, second.Problems)
			}
			if report := tn.uninstall(); len(report.Left) != 0 {
				t.Errorf("uninstallation left %v, want nothing", report.Left)
			}
			tn.wantRestored(before)
		})
	}
}

func named(file string) func(s *node.Settings) {
	return func(s *node.Settings) { s.CNIConfFileName = file }
}

// multus returns a configuration as Multus's daemon writes it.
func multus(network string) string {
	return `{"name":"multus-cni-network","cniVersion":"0.3.1","type":"multus-shim",` + network + `}`
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	tn := newTestNode(t)
	for reason, change := range map[string]func(s *node.Settings){
		"a relative directory": func(s *node.Settings) { s.CNIConfDir = "conf" },
		"no state directory":   func(s *node.Settings) { s.StateDir = "" },
		"a path instead of a name": func(s *node.Settings) {
			s.CNIConfFileName = "../10-a.conflist"
		},
		"the owned file is not a list": func(s *node.Settings) {
			s.IstioOwnedCNIConfigFileName = "02-istio-cni.conf"
		},
		"a stand-alone list": func(s *node.Settings) {
			s.Chained, s.CNIConfFileName = false, "x.conflist"
		},
		"an element of another type": func(s *node.Settings) {
			s.Element = json.RawMessage(`{"type":"other"}`)
		},
		"an element that is not an object": func(s *node.Settings) {
			s.Element = json.RawMessage(`[]`)
		},
		"no executable for the plugin": func(s *node.Settings) { s.Binaries = nil },
		"the plugin replaces itself": func(s *node.Settings) {
			s.ReplacedTypes = []string{"sluice-cni"}
		},
	} {
		s := tn.settings
		change(&s)
		if _, err := node.New(s); err == nil {
			t.Errorf("%s: no error, want one", reason)
		}
	}
}

// TestPluginIsRemovedFromAListWithAnUnsupportedVersion covers a program that changes the version of
// a list with the plugin: with the plugin no pod would start.
func TestPluginIsRemovedFromAListWithAnUnsupportedVersion(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	n := tn.node()
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	installed := tn.read("conf/10-a.conflist")
	tn.put("conf/10-a.conflist", strings.Replace(installed, `"1.0.0"`, `"1.2.0"`, 1))
	for range 2 {
		s := n.Reconcile(t.Context())
		tn.wantProblem(s, node.NotChainable, `"1.2.0"`, "supports only 0.3.0, ")
		tn.wantChains(map[string]string{"10-a.conflist": "calico"})
		if s.Primary != "10-a.conflist" {
			t.Errorf("Primary is %q, want 10-a.conflist, which runtimes use", s.Primary)
		}
	}
	tn.put("conf/10-a.conflist", installed)
	tn.mustBeInstalled(n.Reconcile(t.Context()))
	tn.uninstall()
	tn.wantRestored(before)
}
