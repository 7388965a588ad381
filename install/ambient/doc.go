// Package ambient redirects the pods of a node that are in Istio's ambient mode to ztunnel.
//
// # Steps
//
// A pod is enrolled in this order, so that nothing bypasses the mesh, and other nodes send HBONE
// only to a pod that accepts it:
//
//  1. the rules and the policy route in the pod's network namespace, which are read back
//  2. ztunnel is given the network namespace, and acknowledges it (package ztunnel)
//  3. the pod's addresses are added to the node's rules for probes (package hostrules)
//  4. the annotation ambient.istio.io/redirection=enabled, which istiod reads
//
// A pod leaves in this order: rules, ztunnel, the node's rules, annotation. What has failed is
// repeated, and the pod is forgotten last. A pod that was deleted is identified by its UID alone;
// its network namespace has ended with its rules.
//
// # Pods that start
//
// The plugin asks for a pod in ADD and passes its network namespace ([Node.Add]). ADD waits for
// ztunnel for up to 30 s, because pods and ztunnel start at the same time after a reboot, and fails
// closed: a pod of the mesh does not start without ztunnel. After 2 s an event on the pod says what
// it waits for. The annotation follows after the answer.
//
// # Migration from istio-cni
//
// As long as ztunnel is connected to istio-cni, it serves the pods that istio-cni's plugin has
// enrolled in the same ADD. Its listeners in a pod's network namespace prove that
// ([ztunnel.Serves]): they count as its acknowledgement while no ztunnel is connected. When
// istio-cni ends, ztunnel connects to this agent and receives all pods. istio-cni leaves its rules
// in the pods; they are removed when a pod leaves ambient mode.
//
// In the other direction, istio-cni replaces the socket of ztunnel when it starts, and installs its
// rules in the enrolled pods. An agent that is uninstalled then leaves these pods to istio-cni: it
// only removes its own rules.
//
// # Pods that run
//
// A pod is looked at when it or its namespace changes, and every half minute. It is enrolled if it
// should be and is not, for example because its namespace was labelled, and leaves if it should
// not. Changes of its annotations change its rules. Its network namespace is found as for the audit
// (package sandbox), also after the agent was restarted: neither the annotation nor the agent's
// memory counts as a proof, only the rules in the kernel and ztunnel's acknowledgement.
//
// Between these looks the audit compares and repairs the installed rules ([Node.Rules]; package
// audit).
//
// When the agent starts, ztunnels are accepted after all pods of the node were listed and searched
// for. A pod whose network namespace is not found yet is one that ztunnel keeps.
//
// # The annotation
//
// It is "enabled" after step 3, and "pending" while ztunnel or the node's rules are missing. It is
// changed only if the pod has another value. A pod whose rules are in the kernel already when the
// agent starts keeps its annotation until ztunnel connects again.
package ambient
