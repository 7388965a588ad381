// Package agent is the node agent. It connects the parts that install, guard and serve the plugin.
//
// # Start
//
// First the agent opens its ports, so that readiness can report why the node is not ready. Then it
// tests the kernel by applying rules in a temporary network namespace. If this succeeds, it
// installs the executables. Once the plugin can read pods through the agent's socket or with the
// plugin's kubeconfig, the agent installs the configuration. A failed step is repeated, except that
// the agent exits if it cannot open a port. Only steps that need the API server wait for it.
//
// # Readiness
//
// Ready means that an ADD would succeed now, as far as the agent knows. The plugin must be able to
// read pods in one of two ways. The socket is available once the node's pods have been listed, as
// long as the API server permits the agent to watch them. An outage of the API server does not
// matter, because no pod is scheduled to the node meanwhile. The kubeconfig is available while the
// API server replies and permits the plugin to read pods. An outage of more than half a minute
// makes the kubeconfig unavailable. The agent checks the kubeconfig every half minute if it does
// not serve the socket, otherwise every ten minutes.
//
// The API server must accept the agent's own credentials (package credential), and the permissions
// of the plugin's kubeconfig must be known.
//
// The node is ready only if neither way lacks a permission, because only a person can grant it. If
// one way lacks a permission and the other is available, the agent inserts the plugin into the
// chain, so that pods are redirected; but the node is not ready and keeps its start-up taint.
// Missing permissions are checked again every few seconds.
//
// If no feature that enters the network namespaces of pods is enabled, the agent lacks the
// capabilities to test the kernel. The kernel is then assumed to support the rules, and readiness
// says so.
//
// # Reboot
//
// The plugin's configuration persists across a reboot, but the kubeconfig, which is on a tmpfs,
// does not. The agent's pod must start nevertheless. For this pod the plugin therefore neither
// reads a kubeconfig nor sends a request. It identifies the pod by pod_namespace and
// agent_daemonset, or by an annotation. The runtime passes the pod's annotations, because the
// plugin's configuration requests them by a CNI capability.
//
// On runtimes that call STATUS, a missing kubeconfig or an expired token must not make STATUS fail
// if the configuration names the agent (pod_namespace), because the agent will write a new
// kubeconfig. Otherwise the node would not be ready, and the agent's pod, which is not in the
// host's network, would not start.
//
// # Audit
//
// Running pods are audited from the start (package audit), even if the plugin cannot be installed:
// the audit needs only the node's pods and the kernel. The server for the plugin, which uses the
// same cache of pods, also returns the location and the desired redirection of each pod.
//
// # Stop
//
// When the agent is stopped and no other agent will replace it (package retire), it removes the
// plugin from the node, and continues to serve the plugin meanwhile. Otherwise it leaves everything
// in place: the plugin reads pods with its kubeconfig until the next agent runs.
package agent
