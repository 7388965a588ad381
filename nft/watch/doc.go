// Package watch reports changes of rules and policy routes in many network namespaces, over two
// sockets for all of them together.
//
// [Open] returns a [Watcher]. [Watcher.Add] adds a namespace, and [Watcher.Next] waits for an
// [Event], which names a namespace in which something may have changed. The caller then reads
// what is there, with nft.Read for instance.
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
//   - Each nftables transaction that changes anything, also of iptables-nft, is reported once: a
//     filter in the kernel drops all of its messages but the last. Changes by iptables-legacy
//     send no message.
//   - Changes of policy rules, of routes in tables other than main and local, removals of
//     addresses from lo, and changes of the state of lo, which removes its routes without a
//     message.
//
// # Requirements
//
// Open needs CAP_NET_ADMIN and CAP_NET_BROADCAST in the user namespace that owns its network
// namespace. Namespaces of other user namespaces are reported too. A watcher keeps no namespace
// alive: it refers to them by ids, which end with their namespaces. The kernel reports only
// namespaces that have an id in the namespace of the sockets; Add assigns one.
//
// # Bounds
//
// A pod can change rules as fast as it likes. All changes of a namespace that happen before the
// caller asks are one event. A socket is read at most once in 100 ms, and once in a second after
// the kernel has dropped messages because the receive buffer was full; an event with Lost set
// then stands for all namespaces. A buffer holds 2500 messages of 1.5 µs each (measured), so that
// reading costs at most 4 % of a core. A reported transaction costs its sender 5 µs more.
//
// # Hostile pods
//
// When a sender asks for an echo, the kernel skips the sockets that have the port id of its
// socket, and compares port ids across namespaces. A pod that knew the port id of a watcher could
// change rules without a report, so the sockets here have random ones. Messages that processes
// send to the multicast groups themselves are ignored. Process names in events are chosen by the
// processes; process ids are the kernel's.
package watch
