// Package agent is the node agent. It connects the parts that install, guard and serve the plugin.
//
// # Start
//
// First the agent opens its ports, so that readiness can report why the node is not ready. Then it
// tests the kernel by applying rules in a temporary namespace. If this succeeds, it installs the
// executables and, once the plugin can read pods through the agent's socket or its own kubeconfig,
// the configuration. Failed steps are repeated. Only steps that need the API server wait for it.
//
// # Readiness
//
// Ready means that an ADD would succeed now, as far as known. The plugin must be able to read pods
// in one of two ways. The socket is available once the node's pods have been listed, while the API
// server permits the agent to watch them; an outage does not matter, because no pod is scheduled to
// the node during one. The kubeconfig is available while the API server replies and permits pods to
// be read; an outage of more than half a minute makes it unavailable. It is checked every half
// minute if nothing is served, otherwise every ten minutes.
//
// The API server must accept the agent's own credentials (package credential), and the permissions
// of the plugin's kubeconfig must be known.
//
// No permission may be missing for either way, because a person must correct that. One way is
// sufficient to insert the plugin into the chain, so that pods are redirected; but the node is not
// ready and keeps its start-up taint. Missing permissions are checked again every few seconds.
//
// If no feature that enters pods is enabled, the agent has no capabilities to test the kernel. The
// kernel is then assumed to support the rules, and readiness says so.
//
// # Reboot
//
// The plugin's configuration persists across a reboot, but not the kubeconfig, which is on a tmpfs.
// The agent's pod must still start. The plugin therefore neither reads a kubeconfig nor sends a
// request for the pod of the node agent, which it identifies by pod_namespace and agent_daemonset
// or by the annotation that the runtime passes (the agent requests this capability in the plugin's
// configuration). On runtimes that call STATUS, the plugin must not fail because of a problem that
// the agent will correct, if the configuration contains the agent's name (pod_namespace): a missing
// kubeconfig, or an expired token. Otherwise the node would not be ready, and the agent's pod,
// which is not in the host's network, would not start.
//
// # Audit
//
// Running pods are audited from the start (package audit), whether or not the plugin can be
// installed: the audit needs only the node's pods and the kernel. The server for the plugin, which
// uses the same cache, also returns the location and the desired redirection of each pod.
//
// # Stop
//
// When it is stopped, the agent removes the plugin from the node if no agent will replace it
// (package retire). Otherwise it leaves everything in place: the plugin reads pods with its
// kubeconfig until the next agent runs. During uninstallation the agent continues to serve the
// plugin.
package agent
