package chain

import (
	"encoding/json"
	"path/filepath"
	"slices"
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
	// NetworkAttachmentDefinition.
	Unclear Delegation = "delegates to a network that is not seen here"
	// Elsewhere: Multus runs a third configuration.
	Elsewhere Delegation = "delegates to another configuration"
	// Copied: Multus runs a copy of a configuration, and the copy lacks the plugin or is invalid.
	Copied Delegation = "holds a copy of a configuration without the plugin"
)

// IsMultus reports whether the type is one of Multus' types: multus, or multus-shim, which calls
// the daemon of Multus.
func IsMultus(plugin string) bool { return plugin == "multus" || plugin == "multus-shim" }

// Delegates returns how c delegates to the other configuration, which contains the plugin. See
// "clusterNetwork" and "delegates" in Multus' configuration reference; Multus ignores delegates if
// clusterNetwork is set.
func (c Choice) Delegates(to Choice, plugin string) Delegation {
	multus := c.List.Plugins[0]
	if !IsMultus(multus.Type) {
		return NoDelegation
	}
	var fields struct {
		ClusterNetwork string
		Delegates      []json.RawMessage
	}
	if err := json.Unmarshal(multus.Raw, &fields); err != nil {
		return Unclear
	}
	network := fields.ClusterNetwork
	base := filepath.Base(network)
	switch {
	case network == "" && len(fields.Delegates) == 0:
		return Unclear
	case network == "":
		return inspectCopy(fields.Delegates[0], plugin)
	// The network is a directory, or a NetworkAttachmentDefinition with its namespace.
	case strings.Contains(network, "/") && !IsConfiguration(base):
		return Unclear
	case slices.Contains([]string{
		to.Name, strings.TrimSuffix(to.Name, filepath.Ext(to.Name)), to.List.Name,
	}, base):
		return Followed
	case IsConfiguration(base):
		return Elsewhere
	}
	return Unclear
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
