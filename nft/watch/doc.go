// Package watch reports changes of rules and policy routes in many network namespaces, with three
// sockets in total.
//
// [Open] returns a [Watcher]. [Watcher.Add] adds a namespace, and [Watcher.Next] waits for an
// [Event], which names a namespace whose rules or routes may have changed. The caller then reads
// them, for example with nft.Read.
//
//	w, err := watch.Open()
//	if err != nil {
//		return err
//	}
//	defer w.Close()
//	if err := w.Add(ns); err != nil {
//		return err
//	}
//	for {
//		event, err := w.Next(ctx)
//		if err != nil {
//			return err
//		}
//		check(event.NS) // every namespace if event.Lost
//	}
//
// # Reported changes
//
//   - Changes by nftables transactions, including transactions of iptables-nft. A transaction is
//     reported once: a socket filter drops all of its messages except the last.
//   - Changes of policy rules, and of routes in tables other than main and local.
//   - Removals of addresses from lo, and changes of the interface lo. When lo loses its last IPv4
//     address or goes down, the kernel removes the routes of lo without a message.
//
// The kernel sends no message for changes by iptables-legacy.
//
// # Requirements
//
// Open needs CAP_NET_ADMIN and CAP_NET_BROADCAST in the user namespace that owns the network
// namespace of the calling thread. Namespaces owned by other user namespaces are reported too. A
// watcher does not keep namespaces alive: it refers to them by namespace ids, which the kernel
// removes with the namespaces. The kernel reports only changes of namespaces that have an id in the
// namespace of the sockets; Add assigns one.
//
// # Bounds
//
// A pod can change rules at an unlimited rate. All changes of a namespace between two calls of Next
// are one event. A socket is read at most once per 100 ms, and at most once per second after the
// kernel has dropped messages because the receive buffer was full. After such a loss, Next returns
// an event with Lost set, which represents all namespaces. A receive buffer holds 2500 messages,
// and reading a message takes 1.5 µs (measured): reading a socket costs at most 4 % of a core. A
// transaction in a watched namespace costs its sender 5 µs more.
//
// # Hostile pods
//
// If a sender requests an echo, the kernel does not notify the sockets that have the port id of the
// sender's socket, even in other namespaces. A pod that knows the port id of a watcher could change
// rules without a report. Therefore the sockets have random port ids. A watcher ignores messages
// that processes send to the multicast groups. A process can choose the process name in an event,
// but not the id.
package watch
