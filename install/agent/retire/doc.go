// Package retire decides whether an agent that is stopped removes the plugin from its node.
//
// The agent removes the plugin only if the API server confirms that no agent will replace it: its
// DaemonSet is deleted or being deleted, or no longer selects the node. After a rolling update, a
// reboot or an eviction another agent follows, and pods that start in between need the plugin. If
// the API server cannot be reached, or refuses the agent's requests, the plugin therefore stays.
//
// An uninstallation often deletes the agent's permissions together with its DaemonSet. The agent
// therefore watches the DaemonSet, and then decides with the DaemonSet that it saw last.
package retire
