// Package audit ensures that the mesh pods of a node keep their redirection.
//
// The record of a pod's ADD defines the pod's desired state. If there is none, the record of its
// repair does (package repair). If there is neither, the auditor decides as ADD does, from the pod
// object and the addresses in the pod's network namespace. Pods that ADD skips are not audited, nor
// are pods that have ended. A pod that is being deleted and has a record is audited until its
// network namespace is removed, because it has traffic during its termination grace period. The
// auditor reads the actual state completely from the kernel. A comparison takes about 0.3 ms with
// nftables and less than 1 ms with iptables-legacy. If the two states were equal at the last
// comparison with nftables, a check of the generation ID and of the routing (0.1 ms) suffices.
//
// # Audits
//
// An audit of a pod compares the pod's actual state with its desired state, and repairs
// differences. A pod is audited when it appears or changes, after an event of its network namespace
// (package nft/watch), and when the audit interval has elapsed, because iptables-legacy has no
// events and events may be lost. Periodic audits are grouped at a few times in the interval,
// because waking a thread costs more than an audit. After lost events all pods are audited, at a
// rate that uses at most 2 % of a core.
//
// # Repair
//
// A pod that differs from its desired state is repaired, with nftables by one transaction, with
// iptables-legacy by one replacement of each table. Then the result is checked. A pod whose rules
// are changed repeatedly is repaired immediately three times, and then at most once per second.
// Between a change and the next repair, its traffic may bypass the proxy. After ten changes of the
// pod object in quick succession, further changes cause at most one audit every two seconds; after
// ten events, further events cause at most one audit per second. If an audit takes long because of
// many rules, audits of the pod are limited to 5 % of a core.
//
// A failed repair is repeated with exponential backoff of up to a minute. Differences that a repair
// cannot remove, such as a foreign rule among Sluice's policy routes, are reported. Their repair is
// attempted again with the same backoff, which does not delay the repair of other differences.
//
// The pods are in a rate-limiting work queue of client-go with two workers. A pod that is no longer
// audited remains in the queue until a worker takes it, and is not audited again.
//
// Connections that were opened before a repair and bypass the proxy are ended (package
// established), unless the agent is configured to keep them.
//
// The auditor determines the effect of foreign rules, of any backend and table, on the traffic that
// the pod's rules capture (package foreign). If they let some traffic bypass the proxy, or if this
// cannot be decided, the pod does not count as redirected, and an event names the rule. The auditor
// decides at the first audit of a network namespace, and again when rules have changed. At each
// audit it reads the tables of iptables-legacy, which has no events, and compares a digest of them
// with the last one.
//
// A pod whose network namespace has no address does not count as redirected either. A process of
// the pod may have moved the pod's interface to another namespace, which has no rules.
//
// A pod without rules and without a record of ADD started without the plugin, usually before the
// plugin was installed. Package repair decides whether to repair, delete or label it. If its
// namespace contains rules of Istio, istio-cni has redirected it. The agent does not change it, but
// evaluates these rules: the pod counts as redirected only if they capture what Sluice's rules
// would capture. A pod whose sandbox is known only from a process is not repaired while its ADD may
// be running, because its addresses may not be assigned yet. If a running pod gets a new sandbox,
// its ADD is expected to end within four minutes. A static pod is audited like other pods, by means
// of its mirror pod. The mirror pod is never deleted, because the kubelet would not create the
// static pod again.
//
// # Sandboxes that end
//
// While the runtime removes or replaces a sandbox, the record of ADD disappears first, then the
// addresses and the network namespace, and then the status of the pod changes. The auditor reports
// none of this. The removed record still defines the desired state while the network namespace
// exists, and a missing address or sandbox is reported only if it stays missing. A pod in its
// termination grace period is reported like a running pod while it has its record.
//
// # Orphaned pods
//
// A pod whose deletion was forced (kubectl delete --force) is removed from the API server while its
// containers may still run. Such a pod is orphaned: it is audited and counted until its network
// namespace is removed. Its desired state is taken from its records; after a restart, the agent
// finds the pod by these records. A static pod whose mirror pod does not exist is audited in the
// same way. If the records exist, but the network namespace cannot be entered, the pod counts as
// unknown. If there is no record, the agent does not know the pod. A pod in ambient mode leaves
// this mode when it is deleted, and is not audited afterwards, because ztunnel stops serving it.
// Its rules remain.
//
// # Ambient mode
//
// A pod in ambient mode is audited like any other once the agent has installed its rules
// ([Options.Ambient]). The rules that the agent has installed define the desired state, not the
// record of ADD: while pods run, they enter and leave ambient mode, and their annotations change.
// Enrollment and audit never change the rules of a pod at the same time. The audit also reports
// differences that were repaired when the pod was enrolled again, for example after a restart of
// the agent.
//
// # Counters
//
// The auditor reads the rules of a pod with counters at each audit, because packets do not change
// the generation ID. It exports the counters as a metric of the pod or of its namespace. A pod
// whose rules have no counters has no series.
//
// # Addresses
//
// ADD determines the address families of a pod from the CNI result. The audit uses the addresses of
// the namespace's interfaces in the order in which they were added, as istio-iptables does. The
// addresses in the pod's status are set late and contain at most one address of each family.
package audit
