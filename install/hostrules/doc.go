// Package hostrules keeps the rules of a node with pods in ambient mode, in the node's network
// namespace.
//
// The rules give probes of the kubelet the source address that the pods do not capture (see
// [rules.AmbientHost]). They are in a table of Sluice's own, so that a program that flushes its own
// tables does not change them. A [Guard] writes them:
//
//   - when the addresses of the pods change. Calls that arrive while rules are written share the
//     next write.
//   - when they differ from the desired rules, for example after "nft flush ruleset". nf_tables
//     reports each change of the namespace (package nft/watch); iptables-legacy reports none, so the
//     rules are also compared at an interval.
//   - when the kubelet has another cgroup: systemd creates its cgroup again when it restarts the
//     kubelet, and rules refer to a cgroup by its number. The kubelet is looked at four times per
//     second.
//
// A guard writes nothing before it has been told the addresses of all pods, because the rules of an
// earlier agent are still correct until then.
//
// # Who is the kubelet
//
// [FindKubelet] looks for the kubelet among the processes in the node's network namespace, by the
// names that the distributions give it, and returns its cgroup of version 2. Without one, the rules
// match its user instead, as in Istio's nftables backend. If there is no kubelet at all, they match
// user 0, and the guard reports that.
//
// The kernel resolves the path of a cgroup, and counts its level, in the cgroup namespace of the
// writer. The agent's container has its own one, therefore [Node.Do] enters the node's.
//
// # iptables-legacy
//
// With the legacy backend the rules are in the node's tables of iptables-legacy. The kernel
// replaces such a table as a whole, therefore the guard holds the lock of the node's iptables
// programs (/run/xtables.lock) while it writes. It reaches the file through the root directory of
// the node's first process. A program that does not take the lock may lose a rule, or make the
// guard lose one, which the next comparison finds.
package hostrules
