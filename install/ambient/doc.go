// Package ambient redirects the pods of a node that are in Istio's ambient mode to ztunnel.
//
// # Steps
//
// A pod is enrolled in this order, so that nothing bypasses the mesh, and other nodes send HBONE
// only to a pod that accepts it:
//
//  1. The rules and the policy route are installed in the pod's network namespace and read back.
//  2. Ztunnel receives the network namespace, and acknowledges the pod (package ztunnel).
//  3. The pod's addresses are added to the node's rules for probes (package hostrules).
//  4. The annotation ambient.istio.io/redirection is set to enabled. Istiod reads it.
//
// A pod leaves ambient mode in this order: its rules are removed, ztunnel is notified, its
// addresses are removed from the node's rules, and its annotation is removed. If a step fails, the
// agent repeats the steps until all have succeeded. A deleted pod is only removed from ztunnel and
// from the node's rules, by its UID. Its annotation no longer exists, and usually neither do its
// network namespace and rules.
//
// # Pods that start
//
// In ADD the plugin requests the enrollment of the pod and passes its network namespace
// ([Node.Add]). ADD waits for ztunnel for up to 30 s, because pods and ztunnel start at the same
// time after a reboot. After 2 s an event on the pod reports the wait. After 30 s ADD fails: a pod
// of the mesh does not start without ztunnel. ADD does not wait until the annotation is set.
//
// # Migration from istio-cni
//
// While both istio-cni and Sluice are installed, both plugins enroll a pod in its ADD, and ztunnel
// may be connected to istio-cni instead of this agent. In this case the listeners of ztunnel in the
// pod's network namespace prove that ztunnel serves the pod ([ztunnel.Serves]), and count as an
// acknowledgement. When istio-cni exits, ztunnel connects to this agent and receives all pods.
// istio-cni leaves its rules in the pods; this agent removes them when a pod leaves ambient mode.
//
// In the other direction, istio-cni replaces the socket of ztunnel when it starts, and installs its
// rules in the enrolled pods. An agent that is uninstalled then leaves these pods to istio-cni: it
// only removes its own rules.
//
// # Pods that run
//
// A pod is reconciled when it or its namespace changes, and every half minute. It is enrolled if it
// should be in ambient mode and is not enrolled, for example because its namespace was labeled. It
// leaves if it should not be in ambient mode. A change to its annotations changes its rules.
// Package sandbox finds the pod's network namespace, even after a restart of the agent. Only the
// rules in the kernel and ztunnel's acknowledgement prove that a pod is enrolled; the annotation
// does not.
//
// Between reconciliations the audit compares and repairs the installed rules ([Node.Rules]; package
// audit).
//
// When the agent starts, it serves ztunnels only after it has listed all pods of the node and
// searched for their network namespaces. It also sends ztunnel the pods whose network namespaces
// were not found, and the pods whose mode is unknown, because their Kubernetes namespaces cannot be
// read yet. ztunnel keeps such a pod if it already serves it.
//
// # The annotation
//
// The annotation is "enabled" after step 3, and "pending" while the rules are installed but step 2
// or 3 has not succeeded. It is changed only if the pod has another value. If the rules are already
// in the kernel when the agent starts, the annotation is unchanged until ztunnel connects again.
package ambient
