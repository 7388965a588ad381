// Package bypass finds out why a pod of the mesh has no ADD of the plugin, from two facts: when the
// runtime made the pod's sandbox, and when the node's CNI chain was verified to have the plugin. A
// sandbox that was made while the chain was as it should be shows that the runtime does not use
// that chain: it reads another directory, or has not read the configuration since it was changed.
// This is called a bypass. It stands until an ADD of the plugin shows that the runtime uses the
// chain again.
package bypass
