// Package agent is the node agent: it puts the parts together that install the plugin, guard it and
// serve it.
//
// # Start
//
// First the ports answer, so that whoever asks why the node is not ready is told. Then the kernel
// is asked by what it must be able to do: rules are put into a namespace that is gone afterwards.
// Only if it can, something is installed: executables, and once the plugin could read pods, by the
// agent's socket or by its own kubeconfig, its configuration. All parts are tried again as long as
// they fail, and none waits for the API server but those that need it.
//
// # Readiness
//
// Ready means that an ADD would succeed now, as far as is known at this moment. One of two ways
// must lead to pods. The socket does once the node's pods have been listed, as long as the API
// server lets them be followed; an outage does not close it, since no pod comes to the node in one.
// The kubeconfig does as long as the API server answers and lets pods be read; an outage closes it
// when it has lasted for half a minute. It is tried every half minute where nothing is served, and
// otherwise every ten minutes.
//
// The API server must accept the agent's own credentials (package credential), and must have said
// what the plugin's kubeconfig may read.
//
// And no right may be missing for either way: that is a mistake which somebody has to mend. One way
// is enough for the gate, so that pods are redirected; but the node is not ready, and keeps its
// start-up taint. What is closed is tried again every few seconds.
//
// An agent that has no feature which enters pods has no capabilities to try the kernel with. Then
// the kernel is taken for granted, and readiness says so.
//
// # A node that was started anew
//
// The plugin's configuration outlasts a reboot, and the kubeconfig does not, since it is on a
// tmpfs. The agent's pod must start nevertheless. That rests on the plugin: for the pod of the node
// agent, which it knows by pod_namespace and agent_daemonset or by the annotation that the runtime
// passes (for this capability the agent asks in the plugin's configuration), it neither reads a
// kubeconfig nor asks anybody. And on runtimes that ask for STATUS it rests on the plugin not
// failing, where the configuration names an agent (pod_namespace), for what that would mend: a
// kubeconfig that is missing, or whose token has expired. With a failing one the node would not be
// ready, and the agent's pod, which is not in the host's network, would not be started.
//
// # Audit
//
// In addition, the pods that run are audited from the start (package audit), whether the plugin can
// be installed or not: for that nothing is needed but the node's pods, which the API server says,
// and the kernel. Whoever serves the plugin from the same copy of the pods can also tell where each
// of them is, and what it should have there.
//
// # Stop
//
// Told to stop, the agent takes the plugin off the node if package retire says so, and otherwise
// leaves everything where it is: the plugin reads pods by its kubeconfig until the next agent is
// there. While it uninstalls, it goes on to answer the plugin.
package agent
