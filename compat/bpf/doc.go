// Package bpf lists the eBPF programs that see the traffic of a network namespace outside
// netfilter. These programs are attached to the cgroups of its processes, to the namespace itself,
// or to its interfaces. Programs at the node's end of a veth or netkit pair are not listed, because
// they belong to another namespace.
//
// [List] needs CAP_NET_ADMIN to find programs, and CAP_SYS_ADMIN to read their names and users.
package bpf
