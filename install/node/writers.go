package node

import (
	"slices"

	"github.com/sluice-mesh/sluice/install/chain"
)

// A writer is a program that writes network configurations, identified by the plugin that it
// installs.
type writer struct{ name, advice string }

const (
	ownConfiguration = "set istioOwnedCNIConfig, so that its file is not changed"
	uninstallIt      = "uninstall it, or take it off this node"
)

// writerOf returns the program that installs a plugin, if known. See the installers of the
// projects.
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
		"multus": {
			"Multus", "name the configuration that it delegates to in cniConfFileName",
		},
		"multus-shim": {"Multus", "name the configuration that it delegates to in cniConfFileName"},
		"istio-cni":   {"istio-cni's agent", uninstallIt},
		"linkerd-cni": {"linkerd-cni", uninstallIt},
		"consul-cni":  {"consul-cni", uninstallIt},
		"kuma-cni":    {"kuma-cni", uninstallIt},
	}
	if w, ok := known[plugin]; ok {
		return w
	}
	return writer{"the installer of " + plugin, ownConfiguration}
}

// stranger is the writer if no known installer fits.
var stranger = writer{
	"an unknown program",
	"find out what cleans or writes the directory of plugins on the node, and stop it",
}

// blame returns the plugin whose installer probably changed a file of the agent: a plugin with the
// same position, or else the owner of the network.
func blame(s Settings, f Found, name string, primary []string) string {
	plugins := primary
	if there, err := chain.Read(chain.File{Name: name, Data: f.Files[name].Data}); err == nil {
		plugins = there.List.Types()
	}
	for _, plugin := range plugins {
		// Cilium writes complete chains that begin with a cloud provider's plugin.
		if plugin == "cilium-cni" || slices.Contains(s.TakeOver, plugin) {
			return plugin
		}
	}
	if len(plugins) == 0 {
		return "an unknown plugin"
	}
	if last := plugins[len(plugins)-1]; slices.Contains(plugins, s.Type) && last != s.Type {
		return last // it was put behind us
	}
	return plugins[0]
}
