package chain

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// Delegation describes which network a configuration with Multus as its first plugin runs for each
// pod.
type Delegation string

// The delegations, relative to another configuration in the same directory.
const (
	// the first plugin is not Multus
	NoDelegation Delegation = ""
	// or contains a copy with the plugin
	Followed Delegation = "delegates to it"
	// perhaps a NetworkAttachmentDefinition of that name
	Unclear   Delegation = "delegates to a network that is not seen here"
	Elsewhere Delegation = "delegates to another configuration"
	Copied    Delegation = "holds a copy of a configuration without the plugin"
)

// IsMultus reports whether plugins of the type delegate to other networks. A shim calls the daemon
// of Multus.
func IsMultus(plugin string) bool { return plugin == "multus" || plugin == "multus-shim" }

// Delegates reports whether a configuration runs another one, which contains the plugin. See
// "clusterNetwork" and "delegates" in Multus' configuration reference; the latter is ignored if the
// former is set.
func (c Choice) Delegates(to Choice, plugin string) Delegation {
	multus := c.List.Plugins[0]
	if !IsMultus(multus.Type) {
		return NoDelegation
	}
	var head struct {
		ClusterNetwork string
		Delegates      []json.RawMessage
	}
	if err := json.Unmarshal(multus.Raw, &head); err != nil {
		return Unclear
	}
	network := head.ClusterNetwork
	base := filepath.Base(network)
	switch {
	case network == "" && len(head.Delegates) == 0:
		return Unclear
	case network == "":
		return copied(head.Delegates[0], plugin)
	case strings.Contains(network, "/") && !IsConfiguration(base): // a directory, or a name in a namespace
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

// copied evaluates the first delegate, which is the network of each pod: a list, or a single-plugin
// configuration.
func copied(delegate json.RawMessage, plugin string) Delegation {
	list, err := Parse(delegate)
	if err != nil {
		list, err = FromSinglePlugin(delegate)
	}
	if err != nil || !list.Has(plugin) {
		return Copied
	}
	return Followed
}
