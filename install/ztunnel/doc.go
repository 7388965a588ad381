// Package ztunnel serves the ztunnel discovery service (ZDS): it tells the ztunnels of the node
// which pods to serve, and passes the pods' network namespaces to them. ztunnel opens its listeners
// inside the pod's network namespace.
//
// # Use
//
// A [Server] has the state: the pods that ztunnel should serve. [Server.Restore] sets the pods that
// exist when the agent starts; [Server.Add] and [Server.Remove] change the state afterwards, and
// wait for ztunnel. Each ztunnel that connects receives the current state first.
//
//	server := ztunnel.New(log, ztunnel.Options{})
//	go server.Serve(ctx, ztunnel.DefaultSocket)
//	server.Restore(pods)
//	...
//	err := server.Add(ctx, ztunnel.Pod{UID: uid, Name: "web", Namespace: "default", Netns: ns})
//	switch {
//	case errors.Is(err, ztunnel.ErrNotConnected): // no ztunnel is connected; it is sent to the next one
//	case errors.Is(err, ztunnel.ErrRefused):      // contains the text of ztunnel
//	}
//
// # Protocol
//
// The protocol is Istio's, on a Unix socket of the type SOCK_SEQPACKET. One packet is one message
// of package zds. ztunnel connects and sends a hello with the version, which is recorded and not
// compared. The agent sends an add for each pod, with the descriptor of its network namespace, or a
// keep if the namespace is unknown; then the end of the snapshot; then adds and deletes as they
// occur. ztunnel acknowledges each message, in order. A connection has at most one message that is
// not acknowledged.
//
// During an upgrade several ztunnels are connected. Each receives all messages. An add succeeds
// when the first of them has acknowledged it, a removal when all have; a ztunnel that disconnects
// meanwhile does not count.
//
// Differences from istio-cni are in the manual of the tests (e2e/README.md, Ambient mode).
//
// # Limits
//
//   - Hello must arrive within 5 s after the connection is accepted.
//   - A message of ztunnel has at most 64 KiB.
//   - At most 16 connections are served; others wait in the queue of the socket.
//   - Only root may connect.
//   - There is no time limit for an acknowledgement, because one that is late is still valid. The
//     callers of Add and Remove set a deadline; [Server.State] shows which message is not acknowledged, and since when.
//   - An acknowledgement that nothing waits for, and a message that cannot be decoded, close the
//     connection: the order is the only relation between messages and acknowledgements. ztunnel
//     connects again and receives a snapshot.
package ztunnel
