// Package established ends the connections of a network namespace that bypass the proxy because
// they were opened while rules were missing.
//
// # Selection
//
// [End] lists the connections of the namespace: the conntrack entries, and the TCP sockets without
// a conntrack entry. For each connection it reconstructs the first packet, and evaluates the
// ruleset for it with [diff.ExplainWithin]. A connection bypasses the proxy if the ruleset would
// have captured the packet, but the connection does not lead to the proxy. Connections of the
// proxy, excluded connections and captured connections are kept.
//
// The first packet has the addresses of the original direction of the conntrack entry. Without an
// entry, End assumes that the namespace accepted the connection if the local port of the socket has
// a listener, and opened the connection otherwise. The owner of a socket is the user from the
// kernel's list of sockets and the group of the socket's file in /proc, as ids of the user
// namespace that owns the network namespace. The list of sockets also contains the mark of the
// socket, by which the rules of ambient mode recognize ztunnel's connections. End lists no UDP
// sockets: their owners and marks are unknown. If the decision depends on unknown data, the
// connection is kept and counted as undecided.
//
// # Termination
//
// End destroys TCP sockets (SOCK_DESTROY, CONFIG_INET_DIAG_DESTROY), which resets the connection on
// both sides. It deletes conntrack entries, so that the next packets are evaluated like the first
// packets of a new connection. Therefore a TCP connection whose socket cannot be destroyed breaks
// with its next packet, unless the sysctl nf_conntrack_tcp_loose is 0: then the packet is invalid
// for conntrack, and bypasses the proxy. The next datagram of a UDP connection is captured.
//
// # Limits
//
// A process of the namespace determines the number of connections. End examines the conntrack
// entries while the kernel lists them, and keeps only the TCP sockets in memory, at most 131,072.
// It then needs about 40 MiB. If the namespace has more sockets, End examines no TCP connections.
// When [Options.Time] has passed, it examines no further connections. [Report.Unexamined] names the
// limit that was reached. A namespace with more than 10,000 addresses is an error.
package established
