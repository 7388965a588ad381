// Package audit ensures that the mesh pods of a node keep their redirection.
//
// The desired state of a pod is taken from the record of its ADD. If there is none, it is taken
// from the record of its repair (package repair), or decided as in ADD, with the pod and the
// addresses of its network namespace. Pods that ADD skips are not audited, nor are pods that have
// ended. A pod that is being deleted and has a record is audited until its network namespace is
// removed, because it has traffic during its termination grace period. The actual state is read
// completely from the kernel: a comparison takes about 0.3 ms with nftables and less than 1 ms with
// iptables-legacy. If the two states were equal at the last comparison, a check of the generation
// ID of nftables and of the routing suffices. It takes 0.1 ms.
//
// # Audits
//
// An audit of a pod compares its actual with its desired state, and starts a repair if they differ.
// A pod is audited when it appears or changes, after an event of its network namespace (package
// nft/watch), and when the audit interval has elapsed, because iptables-legacy has no events and
// events may be lost. Audits without an event take place at a few common times, because waking a
// thread costs more than an audit. After lost events all pods are audited, at a rate that uses at
// most 2 % of a core.
//
// # Repair
//
// A pod that differs from its desired state is repaired by one transaction of the backend, and the
// result is checked. A pod that changes its rules repeatedly is repaired immediately three times,
// and then once per second; between a change and the next repair its traffic may bypass the proxy.
// After ten changes of its object in quick succession, a pod is audited at most every two seconds
// for such changes. If an audit takes long because of many rules, audits of the pod are limited to
// 5 % of a core.
//
// A failed repair is repeated with exponential backoff of up to a minute. Differences that a repair
// cannot remove, such as a foreign rule among Sluice's policy routes, are reported. Their repair is
// attempted again with the same backoff, which does not delay the repair of other differences.
//
// The pods are in a rate-limiting work queue of client-go with two workers. A pod that is no longer
// audited remains in the queue until a worker takes it and does nothing.
//
// Connections that were opened before a repair and bypass the proxy are ended (package
// established), unless the agent is configured to keep them.
//
// Foreign rules, of any backend and table, are evaluated by their effect on the traffic that the
// pod's rules capture (package foreign). If they let some traffic bypass the proxy, or if this
// cannot be decided, the pod does not count as redirected, and an event names the rule. The
// decision is made at the first audit of a network namespace and when its rules have changed. The
// tables of iptables-legacy, which has no events, are read at each audit and compared by a digest.
//
// A pod whose network namespace has no address does not count as redirected either: a process of
// the pod may have moved the pod's interface to another namespace, in which there are no rules.
//
// A pod without rules and without a record of ADD started without the plugin, usually before the
// plugin was installed: package repair decides about it. If its namespace contains rules of Istio,
// istio-cni has redirected it. The agent does not change it, but evaluates these rules: the pod
// counts as redirected only if they capture what Sluice's rules would capture. A pod whose sandbox
// is known only from a process is not repaired while its ADD may be running, because its addresses
// may not be assigned yet. An ADD of a running pod is expected to end within four minutes. A static
// pod is audited like other pods, by means of its mirror pod. The mirror pod is never deleted,
// because the kubelet would not create the static pod again.
//
// # Sandboxes that end
//
// While the runtime removes or replaces a sandbox, the record of ADD disappears first, then the
// addresses and the network namespace, and then the status of the pod changes. None of this is
// reported: the removed record still defines the desired state while the network namespace exists,
// and a missing address or sandbox is reported only if it stays missing. While a pod in its
// termination grace period has its record, it is reported like a running pod.
//
// # Orphaned pods
//
// A pod whose deletion was forced (kubectl delete --force) is removed from the API server while its
// containers may still run. Such a pod is orphaned: it is audited and counted until its network
// namespace is removed. Its desired state is taken from its records; after a restart, the agent
// finds the pod by these records. A static pod whose mirror pod does not exist is audited in the
// same way. If the records exist, but the network namespace cannot be entered, the pod counts as
// unknown. If there is no record, the agent does not know the pod. A pod in ambient mode leaves
// this mode when it is deleted, and is not audited afterwards: ztunnel no longer serves the pod,
// but its rules remain.
//
// # Ambient mode
//
// A pod in ambient mode is audited like any other once the agent has installed its rules
// ([Options.Ambient]). The desired state is the rules that the agent has installed, not the record
// of ADD, because pods enter and leave ambient mode, and their annotations change, while they run.
// The agent and the audit do not change the rules of a pod at the same time. The audit also reports
// the differences that the agent repaired when it enrolled a pod again, for example after a restart
// of the agent.
//
// # Counters
//
// The rules of a pod with counters are read at each audit, because packets do not change the
// generation ID; their counters become a metric for the pod or for its namespace. A pod whose rules
// have no counters has no series.
//
// # Addresses
//
// ADD determines the address families of a pod from the result of the chain. The audit uses the
// addresses of the namespace's interfaces in the order in which they were added, as istio-iptables
// does. The addresses in the pod's status are set late and contain at most one of each family.
package audit
