// Package hostrules maintains rules in the node's network namespace for the pods in ambient mode.
//
// The rules give probes of the kubelet a source address that the pods do not capture (see
// [rules.AmbientHost]). They are in a table of Sluice's own: a program that flushes only its own
// tables does not change them. A [Guard] writes the rules:
//
//   - when the addresses of the pods change. Changes that arrive while the rules are written share
//     the next write.
//   - when the rules differ from the desired rules, for example after "nft flush ruleset".
//     nf_tables reports each change in the network namespace (package nft/watch); iptables-legacy
//     reports none, so the rules are also compared at an interval. If another program removes the
//     rules repeatedly, the guard restores them three times without delay, and then once per
//     second.
//   - when the kubelet's cgroup has changed: rules refer to a cgroup by its inode number, and
//     systemd creates the cgroup again when it restarts the kubelet. The guard checks the cgroup
//     four times per second.
//
// A guard writes nothing before it knows the addresses of all pods ([Guard.Replace]). Until then
// the rules of an earlier agent remain.
//
// # Finding the kubelet
//
// [FindKubelet] searches for a process in the node's network namespace that has one of the names
// that distributions give the kubelet. It returns the process with its cgroup of version 2. If the
// process has no such cgroup, or the kernel cannot match it, the rules match the process's user
// instead, as in Istio's nftables backend. While no kubelet has been found, the rules match user 0;
// a kubelet that is no longer found stays in the rules. The guard reports both cases.
//
// The kernel resolves the path of a cgroup, and counts its level, in the cgroup namespace of the
// process that writes the rules. The agent's container has its own cgroup namespace; [Node.Do]
// therefore enters the node's.
//
// # iptables-legacy
//
// With the legacy backend the rules are in the node's tables of iptables-legacy. Such a table can
// only be replaced as a whole. The guard therefore holds the lock of the node's iptables programs
// (/run/xtables.lock) while it writes; it opens the lock file through the root directory of the
// node's first process. If another program does not take the lock, a rule of that program or of the
// guard may be lost. The next comparison detects a lost rule of the guard.
package hostrules
