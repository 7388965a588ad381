// Package bypass determines why a mesh pod has no ADD of the plugin. It compares the creation time
// of the pod's sandbox with the times at which the node's CNI chain was verified to contain the
// plugin. If the sandbox was created while the chain was complete, the runtime does not use this
// chain: it reads another directory, or has not reloaded the configuration. This is called a
// bypass. It lasts until an ADD of the plugin shows that the runtime uses the chain again.
package bypass
