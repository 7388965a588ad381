// Package established ends the connections of a network namespace that bypass the proxy because
// they were opened while rules were missing.
//
// # Which connections
//
// [End] lists the namespace's connections: the entries of conntrack, and the TCP sockets that
// conntrack does not know. For the first packet of each it asks [diff.ExplainWithin] what the
// ruleset does. A connection that the ruleset would have handed to a port of the proxy, and that
// does not lead there, bypasses it. Connections of the proxy itself, excluded ones, and captured
// ones stay.
//
// The first packet is known from conntrack's original direction. A connection that conntrack does
// not know was accepted if a socket listens on its port, and else opened by the socket. The owner
// of a socket is the user that the kernel lists, and the group of the socket's file in /proc. Where
// the answer depends on something that is not known, the connection stays and is counted.
//
// # How they end
//
// Sockets of TCP are destroyed (SOCK_DESTROY, CONFIG_INET_DIAG_DESTROY): both ends see a reset. The
// entries of conntrack are deleted, so that later packets meet the rules as those of a new
// connection: without SOCK_DESTROY the connection breaks at its next packet, and a UDP socket goes
// on by the proxy.
package established
