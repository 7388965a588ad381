// Package plugin is the CNI plugin: the verbs that a container runtime calls for every pod of a node.
//
// ADD finds out what is to become of the sandbox's pod (package decide), and where it belongs to the mesh compiles its rules, puts
// them into the sandbox's network namespace and reads them back (package compat). All other pods are left alone. CHECK compares
// what the namespace holds with what ADD left there, DEL and GC forget what is kept of it (package record), and STATUS tells
// whether ADD could do its work now. The plugin runs at the end of a chain: the result of the plugin before it is its own.
//
// A pod that was redirected, and is to be left alone when ADD is called for it again, loses its rules. As long as that is not known,
// since the pod cannot be read, it keeps them.
//
// # The node agent
//
// Pods are asked for at the node agent's socket first (package agent), and at the API server if nobody answers there. An agent that is
// away costs nothing; one that hangs costs a second, besides the time that the API server has. It also gets the log's lines, and of
// each ADD what became of it, for its metrics: by decision and reason, and which address family was left uncaptured.
//
// Where the configuration names an agent (pod_namespace), STATUS fails for the kernel only. All else, such as a kubeconfig that is
// missing or a token that has expired, is what the agent mends, and it is logged: a runtime whose plugin reports 50 makes the node
// NotReady, so that the agent itself could not be started again, nor any pod that is not of the mesh.
//
// # Error codes
//
// Errors have the codes of the CNI specification, some of them by its package skel before a verb begins, and those from [CodePod] on.
// The message is one line for kubectl describe pod, which shows the details behind it.
//
//	  1  the configuration has a version of the specification that this program does not speak, or that does not know the verb
//	  4  the environment is not what the specification demands: a variable is missing, or CNI_ARGS or a name in it is not allowed
//	  5  standard input cannot be read, or the result not written, or GC cannot forget an attachment
//	  6  standard input has no JSON of a configuration
//	  7  the configuration has wrong fields, or the result of the plugin before is wrong, or GC gets no list
//	  8  CNI_NETNS cannot be opened, or is the host's, or its addresses cannot be read
//	 11  the pod cannot be read now: neither agent nor API server was reached, or they have another pod of the name as yet
//	 50  STATUS: ADD could not work now, and nobody on the node would change that
//	100  the pod cannot be read, and asking again would not help: not found, not allowed, misconfigured
//	101  the pod asks for something that is not allowed; the details list the values with what is, as far as they fit
//	102  the kernel refused the rules, or to remove those of a pod that is left alone now; the details say which and why
//	103  the kernel has other rules than ADD has given it, or does not show to ADD or CHECK what it has
//	104  CHECK: the namespace differs from what ADD left there, or a pod that is left alone, and has no istio-init, has rules of ours; the
//	     details list how
//	999  a defect of this program
//
// The code 51 of STATUS is never used: rules live in the kernel, and connections of running pods do not depend on the plugin.
package plugin
