// Package watch hears, over two sockets for all network namespaces together, that somebody has changed rules or policy routes. What
// became of them is for the hearer to look at.
//
// It needs CAP_NET_ADMIN and CAP_NET_BROADCAST in the user namespace of its own network namespace, and hears of pods in user
// namespaces of their own too. It holds no namespace open: sockets that listen do not pin those that they hear of, and an id (which a
// namespace must have before anything is heard of it, and which [Watcher.Add] gives it) ends with its namespace.
//
// What is heard, and what is not:
//
//   - each nftables transaction that changes anything, also those of iptables-nft, once: of its messages only the last one passes a
//     filter in the kernel. Rules of xtables (iptables-legacy) change in silence;
//   - changes of policy rules, of routes in tables other than main and local, addresses removed from lo, and what happens to lo, which
//     takes its routes along in silence.
//
// # Bounds
//
// A pod may change rules as fast as it can. All that is heard of a namespace until somebody asks is one [Event]. After a look at a
// socket the next one is 100 ms later, and a second later if the kernel had to throw messages away because the receive buffer was
// full; then one event says so for all namespaces. Measured: a buffer holds 2500 messages, of which each takes 1.5 µs to read, so that
// nobody can make listening cost more than 4 % of a core. A transaction that is heard costs its maker 5 µs more.
//
// # Hostile pods
//
// The kernel sends a message to all sockets but those with the port id of the socket that the change came from, if the sender asked
// for an echo, and compares port ids of different namespaces for that. So the sockets here have random ones: a pod that knew the id
// could change rules unheard. Messages that processes send to the groups themselves are passed over. Names of processes are chosen by
// the processes; pids are the kernel's.
package watch
