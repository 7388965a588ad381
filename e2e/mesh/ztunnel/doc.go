// Package ztunnel is a minimal replacement for Istio's ztunnel. It receives pods over ZDS, and
// forwards their traffic inside their network namespaces, with ztunnel's ports and mark:
//
//	15001  outbound connections; forwarded over HBONE to port 15008 of a mesh pod,
//	       and directly to other addresses
//	15006  inbound connections without HBONE; forwarded to the application
//	       from the client's address
//	15008  HBONE (HTTP/2 CONNECT) without TLS; forwarded to the application
//	       from the client's address
//	15053  DNS queries over UDP and TCP, on loopback; forwarded to a resolver
//
// It has no mTLS, policy or service discovery. ZDS messages contain no addresses. Therefore an
// address counts as an address of a mesh pod if it is in one of the pods' namespaces or in
// Options.Mesh. Like package proxy, it adds a header to the first HTTP request of a connection, so
// that the receiver can check the path.
//
// Only the tests of this package use Istio's package hbone, as a client. The implementation does
// not use hbone, because hbone's client can neither enter a network namespace nor set the mark, and
// hbone's server connects to the application from its own address.
package ztunnel
