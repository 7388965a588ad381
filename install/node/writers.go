package node

import (
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
)

// A writer is a program that writes network configurations, identified by the plugin that it
// installs.
type writer struct{ name, advice string }

// Advice for several writers.
const (
	ownConfiguration = "set istioOwnedCNIConfig, so that Sluice writes a file of its own and leaves" +
		" this file unchanged"
	uninstallIt       = "uninstall it, or remove it from this node"
	nameConfiguration = "set cniConfFileName to the name of the configuration to which it delegates"
)

// writerOf returns the program that installs a plugin, according to the source code of the plugin's
// project. For an unknown plugin, the program's name is "the installer of" and the plugin.
func writerOf(plugin string) writer {
	known := map[string]writer{
		"cilium-cni":          {"Cilium's agent", "set cni.exclusive=false in Cilium's values"},
		"calico":              {"Calico's install-cni", ownConfiguration},
		"aws-cni":             {"Amazon's VPC CNI (aws-node)", ownConfiguration},
		"azure-vnet":          {"Azure's CNI", ownConfiguration},
		"flannel":             {"flannel", ownConfiguration},
		"ptp":                 {"kindnet or GKE's netd", ownConfiguration},
		"antrea":              {"Antrea's agent", ownConfiguration},
		"kube-ovn":            {"Kube-OVN", ownConfiguration},
		"ovn-k8s-cni-overlay": {"OVN-Kubernetes", ownConfiguration},
		"weave-net":           {"Weave Net", ownConfiguration},
		"multus":              {"Multus", nameConfiguration},
		"multus-shim":         {"Multus", nameConfiguration},
		"istio-cni":           {"istio-cni's agent", uninstallIt},
		"linkerd-cni":         {"linkerd-cni", uninstallIt},
		"consul-cni":          {"consul-cni", uninstallIt},
		"kuma-cni":            {"kuma-cni", uninstallIt},
	}
	if w, ok := known[plugin]; ok {
		return w
	}
	return writer{"the installer of " + plugin, ownConfiguration}
}

// unknownWriter is the writer of an executable: no plugin identifies the program that wrote it.
var unknownWriter = writer{
	"an unknown program",
	"find the program that cleans or writes the plugin directory of the node, and stop it",
}

// anotherAgent is the writer of a configuration that another node agent with the same state
// directory wrote.
var anotherAgent = writer{
	"another node agent of Sluice",
	"only one agent may run on a node: remove the other one; its pod may be in another namespace, or " +
		"was deleted by force while its container continues to run",
}

// pluginOfWriter returns the plugin whose installer probably changed the file with the name: the
// first plugin that is Cilium's or has one of the types that Sluice replaces, otherwise the last
// plugin if it comes after Sluice's, otherwise the first plugin. If the file cannot be read,
// pluginOfWriter selects one of the plugins of the primary configuration.
func pluginOfWriter(s Settings, found Actual, name string, primary []string) string {
	plugins := primary
	if list, err := chain.Read(chain.File{Name: name, Data: found.Files[name].Data}); err == nil {
		plugins = list.List.Types()
	}
	for _, plugin := range plugins {
		// Cilium writes complete chains that begin with a cloud provider's plugin.
		if plugin == "cilium-cni" || slices.Contains(s.ReplacedTypes, plugin) {
			return plugin
		}
	}
	if len(plugins) == 0 {
		return "an unknown plugin"
	}
	if last := plugins[len(plugins)-1]; slices.Contains(plugins, s.Type) && last != s.Type {
		return last // added after Sluice's plugin
	}
	return plugins[0]
}
