// Package bpf lists the eBPF programs that see the traffic of a network namespace outside
// netfilter: at the cgroups of its processes, at the namespace, and at its interfaces. Programs at
// the node's end of a veth or netkit pair are in another namespace and not listed.
//
// [List] changes nothing. It needs CAP_NET_ADMIN to find programs and
// CAP_SYS_ADMIN to describe them.
package bpf
