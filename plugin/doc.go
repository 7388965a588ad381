// Package plugin is the CNI plugin: the verbs that the container runtime of a node calls.
//
// ADD decides whether the pod of a sandbox is redirected (package decide). For a pod with a sidecar
// it compiles the rules, installs them in the network namespace of the sandbox and verifies them
// (package compat). If it decides not to redirect a pod, it removes the rules of an earlier ADD. If
// it cannot read the pod, it keeps them. CHECK compares the namespace with the rules that ADD
// installed. DEL removes the record of the attachment (package record). It also removes the rules,
// unless the runtime destroys the namespace anyway or another attachment needs them. GC removes the
// records of attachments that no longer exist. STATUS reports whether ADD could work now. The
// plugin is the last of a chain, and its ADD prints the previous plugin's result.
//
// [Plugin] contains the verbs and their dependencies: the source of pods, the node agent, the
// backend, the output and the clock. [System] returns the plugin of this machine, and [Main] runs
// one verb:
//
//	func main() {
//		os.Exit(plugin.Main("v1.0.0"))
//	}
//
// A test sets its own dependencies and calls a verb as package skel does:
//
//	p := &plugin.Plugin{Source: pods, Agent: agent, Backend: compat.Choose, Stdout: &out, ...}
//	err := p.Add(&skel.CmdArgs{ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/pod", ...})
//
// # The node agent
//
// The plugin reads pods from the socket of the node agent first (package agent), and from the API
// server if the agent does not answer. If no agent is running, the request fails immediately. If
// the agent hangs, the plugin asks the API server after a second. The agent also receives the lines
// of the log, and the result of each ADD for its metrics: the decision, its reason, and the address
// families that are not captured.
//
// If the configuration contains the agent's namespace (pod_namespace), STATUS fails only for faults
// of the kernel. Other faults, such as a missing kubeconfig or an expired token, are logged,
// because the agent repairs them: a runtime whose plugin returns code 50 makes the node NotReady,
// and then the agent could not start, and neither could any pod outside the host's network.
//
// The agent also enrolls pods in ambient mode. The plugin passes it their network namespace, and
// ADD ends when ztunnel has acknowledged the pod, or fails after 35 s.
//
// # Error codes
//
// Errors have the codes of the CNI specification, or this package's own codes from [CodePod] on.
// Package skel returns some of the specification's codes before a verb begins. The message is one
// line for kubectl describe pod, which shows the details after the message.
//
//	  1  the configuration has a version of the specification that this program does not support, or
//	     that does not have the verb
//	  4  the environment is invalid: a variable is missing, or CNI_ARGS or a name is not allowed
//	  5  standard input cannot be read, the result cannot be written, or GC cannot remove a record
//	  6  standard input is not a configuration in JSON
//	  7  the configuration has invalid fields, the previous result is invalid, or GC gets no list of
//	     valid attachments
//	  8  CNI_NETNS cannot be opened, is the host's, or its addresses cannot be read
//	 11  the pod cannot be read now: neither the agent nor the API server gave a valid answer, or
//	     both still return an earlier pod of the same name; or a pod in ambient mode cannot be
//	     enrolled now
//	 50  STATUS: ADD would fail now, and nothing on the node would repair that
//	100  the pod cannot be read, and repeating would not help: not found, forbidden, misconfigured
//	101  the pod has invalid settings; the details list the values and what is allowed, as far as
//	     they fit
//	102  rules cannot be installed or removed; the details name the reason, and the refused rule
//	103  the kernel has other rules than ADD sent, or the rules in the kernel cannot be read
//	104  CHECK: the rules in the namespace differ from those that ADD installed, or a pod that is
//	     not redirected and has no istio-init has rules of Sluice; the details list the differences
//	999  a defect of this program
//
// STATUS never returns code 51: rules are in the kernel, and connections of running pods do not
// depend on the plugin.
package plugin
