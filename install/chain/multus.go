package chain

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"
)

// A Delegation describes which network a configuration with Multus as its first plugin runs for
// each pod, relative to another configuration in the same directory. Its text continues a sentence
// that begins with the configuration.
type Delegation string

// The delegations.
const (
	// NoDelegation: the first plugin is not Multus.
	NoDelegation Delegation = ""
	// Followed: Multus runs the other configuration, or a copy of a configuration, and the copy
	// contains the plugin.
	Followed Delegation = "delegates to it"
	// Unclear: it cannot be determined which configuration Multus runs; the network may be a
	// NetworkAttachmentDefinition, or in another directory.
	Unclear Delegation = "delegates to a network that is not seen here"
	// Elsewhere: Multus runs a third configuration.
	Elsewhere Delegation = "delegates to another configuration"
	// Copied: Multus runs a copy of a configuration, and the copy lacks the plugin or is invalid.
	Copied Delegation = "holds a copy of a configuration without the plugin"
)

// IsMultus reports whether the type is one of Multus' types: multus, or multus-shim, which calls
// the daemon of Multus.
func IsMultus(plugin string) bool { return plugin == "multus" || plugin == "multus-shim" }

// defaultMultusConfDir is Multus' default of confDir.
const defaultMultusConfDir = "/etc/cni/multus/net.d"

// Delegates returns how c delegates to the other configuration, which contains the plugin. Both are
// in the directory dir of the node. See "clusterNetwork" and "delegates" in Multus' configuration
// reference: Multus ignores delegates if clusterNetwork is set. A clusterNetwork with a slash is
// the path of a file or of a directory. Another one is the name of a NetworkAttachmentDefinition
// or, if there is none, the name of a network in the directory confDir.
func (c Choice) Delegates(to Choice, dir, plugin string) Delegation {
	multus := c.List.Plugins[0]
	if !IsMultus(multus.Type) {
		return NoDelegation
	}
	var fields struct {
		ClusterNetwork string
		ConfDir        string
		Delegates      []json.RawMessage
	}
	if err := json.Unmarshal(multus.Raw, &fields); err != nil {
		return Unclear
	}
	network, base := fields.ClusterNetwork, filepath.Base(fields.ClusterNetwork)
	switch {
	case network == "" && len(fields.Delegates) == 0:
		return Unclear
	case network == "":
		return inspectCopy(fields.Delegates[0], plugin)
	case !strings.Contains(network, "/"):
		confDir := cmp.Or(fields.ConfDir, defaultMultusConfDir)
		if network == to.List.Name && isNodeDir(confDir, dir) {
			return Followed
		}
	case IsConfiguration(base) && base != to.Name:
		return Elsewhere
	case IsConfiguration(base) && isNodeDir(filepath.Dir(network), dir):
		return Followed
	}
	return Unclear
}

// isNodeDir reports whether path is the directory dir of the node, or this directory as the daemon
// of Multus sees it, whose container has the node's directories below /host.
func isNodeDir(path, dir string) bool {
	path = filepath.Clean(path)
	return dir != "" && (path == filepath.Clean(dir) || path == filepath.Join("/host", dir))
}

// inspectCopy returns Followed if the first delegate, which is the network of each pod, contains
// the plugin, and otherwise Copied. The delegate is a list or a single-plugin configuration.
func inspectCopy(delegate json.RawMessage, plugin string) Delegation {
	list, err := Parse(delegate)
	if err != nil {
		list, err = FromSinglePlugin(delegate)
	}
	if err != nil || !list.Has(plugin) {
		return Copied
	}
	return Followed
}
