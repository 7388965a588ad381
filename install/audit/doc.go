// Package audit sees to it that the pods of the mesh on a node have their redirection, and keep it.
//
// What a pod should have says the record of its ADD; without one, what was repaired says it
// (package repair), or it is decided as ADD decides, from the pod and the addresses of its
// namespace. Whoever is left alone by ADD is left alone here, and so are pods that have ended or
// are being deleted. What a pod has is read from the kernel, all of it: a comparison takes about
// 0.3 ms with nftables and less than 1 ms with iptables-legacy. Of what was as it should be at the
// last visit nftables says whether it has changed since, and of the routing a quick look, in 0.1
// ms.
//
// # When
//
// A pod is visited when it appears or changes, when its namespace is heard of (package nft/watch),
// and when the last visit is as long ago as the interval says: rules of iptables-legacy change in
// silence, and events may be lost. Those visits come together at a few moments of the interval: to
// wake up for each costs more than the visit. After a loss all pods are visited, but no more often
// than costs 2 % of one core.
//
// # What for
//
// A pod that differs from what it should have is repaired by one transaction of the backend, which
// is then read back. A pod whose processes change its rules on and on is repaired three times at
// once, and then once a second: its traffic bypasses the proxy from a change to the next repair.
// A pod that is itself changed on and on is visited every two seconds. Where the rules of a pod are
// so many that a visit takes long, the visits are so rare that they use 5 % of a core.
//
// A repair that fails is tried again after pauses that double up to a minute. What a repair cannot
// remove, such as a rule of another owner among our policy routes, is reported and tried again
// likewise, which does not delay the repair of other differences.
//
// The pods wait in a rate-limiting work queue of client-go, from which two workers take them. The
// queue keeps a pod that is gone until its next visit would be due, and the visit does nothing.
//
// Connections that were opened before a repair, and bypass the proxy since, are ended (package
// established), unless the agent is configured to keep them.
//
// Rules of others, of any backend and table, are judged by what they do to the traffic that the
// pod's rules capture (package foreign): if some of it bypasses the proxy, or that cannot be
// decided, the pod does not count as redirected, and an event says which rule it is. The decision
// is made when a namespace is first seen and when its rules have changed. Those of iptables-legacy
// change without an event: their tables are read at each visit, for a digest.
//
// A pod that has nothing, and of whose ADD nothing is known, started before the plugin was there:
// package repair says what becomes of it. If Istio's rules are in its namespace, istio-cni has
// redirected it, and nothing is done. One whose sandbox only a process shows is let be until its
// status has an address: its ADD may be under way, and its addresses be still to come.
//
// # Addresses
//
// ADD learns from the result of the chain which families a pod has. Here the addresses of the
// namespace's interfaces say it, in the kernel's order, which is that in which they were added;
// istio-iptables takes them too. The addresses of the pod's status come late, and are no more than
// one of each family.
package audit
