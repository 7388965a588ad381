// Package ztunnel serves the ztunnel discovery service (ZDS). It tells the ztunnels of the node
// which pods to serve, and passes them the network namespaces of these pods. ztunnel opens its
// listeners inside each pod's network namespace.
//
// # Use
//
// The state of a [Server] is the set of pods that ztunnel should serve. [Server.Restore] sets the
// pods that exist when the agent starts. [Server.Add] and [Server.Remove] change the state
// afterwards, and wait for ztunnel. When a ztunnel connects, it receives the current state.
//
//	server := ztunnel.New(log, func(n int) { log.Info("connected ztunnels", zap.Int("count", n)) })
//	go server.Serve(ctx, ztunnel.DefaultSocket)
//	server.Restore(pods)
//	...
//	err := server.Add(ctx, ztunnel.Pod{UID: uid, Name: "web", Namespace: "default", Netns: ns})
//	switch {
//	case errors.Is(err, ztunnel.ErrNotConnected): // the next ztunnel receives the pod
//	case errors.Is(err, ztunnel.ErrRefused):      // err contains the message that ztunnel sent
//	}
//
// # Protocol
//
// The protocol is Istio's, on a Unix socket of the type SOCK_SEQPACKET. One packet is one message
// of package zds. ztunnel connects and sends a ZdsHello with its version, which the agent records
// but does not check. The agent then sends an AddWorkload for each pod, with the descriptor of the
// pod's network namespace. If the namespace is unknown, it sends a KeepWorkload: ztunnel continues
// to serve the pod if it served it before. SnapshotSent ends this snapshot. Afterwards the agent
// sends an AddWorkload or a DelWorkload for each change. ztunnel acknowledges each message, in
// order. A connection has at most one unacknowledged message.
//
// During an upgrade several ztunnels are connected. Each receives all messages. [Server.Add]
// succeeds when the first ztunnel has acknowledged the message, and [Server.Remove] when every
// ztunnel that is still connected has acknowledged it.
//
// The section "Ambient mode" of e2e/README.md lists the differences from istio-cni.
//
// # Limits
//
//   - ZdsHello must arrive within 5 s after the server has accepted the connection and
//     [Server.Restore] was called.
//   - A message from ztunnel has at most 64 KiB.
//   - At most 16 connections are served; others wait in the listen backlog of the socket.
//   - Only root may connect.
//   - There is no time limit for an acknowledgement, because a late one is still valid. The callers
//     of Add and Remove set a deadline. [Server.State] shows the message that is not acknowledged,
//     and when it was sent.
//   - The server closes the connection after an unexpected acknowledgement and after a message that
//     cannot be decoded, because acknowledgements are matched to messages only by their order.
//     ztunnel connects again and receives a snapshot.
package ztunnel
