// Package retire decides whether an agent that is told to stop takes the plugin off its node.
//
// It does only if the API server confirms that no agent comes back: its DaemonSet is deleted or
// being deleted, or does not select the node any more. After a rolling update, a reboot or an
// eviction one does, and pods that start in between need the plugin. So an API server that is not
// reached, or does not answer this agent, means that the plugin stays.
//
// Those who uninstall often take the agent's rights away together with its DaemonSet. So that is
// watched: what was seen before the API server fell silent counts.
package retire
