// Package ztunnel is a stand-in for Istio's ztunnel. It receives pods by ZDS, and carries their
// traffic from inside their network namespaces, on ztunnel's ports and with its mark:
//
//	15001  outbound connections: by HBONE to the port 15008 of a pod of the mesh, otherwise directly
//	15006  inbound connections without HBONE, to the application with the address of the client
//	15008  HBONE: an HTTP/2 CONNECT without TLS, to the application with the address of the client
//	15053  DNS queries by UDP and TCP, on loopback, forwarded to a resolver
//
// It has no mTLS, no policy and no knowledge of services. ZDS contains no addresses: the pods of the
// mesh are those with an address in one of the namespaces, and the addresses of Options.Mesh. Like
// the stub of Envoy (package proxy) it adds a header to HTTP requests, with which the receiver
// checks the path.
//
// Istio's package hbone is used in the tests only, as a client of the stand-in. Its client opens
// connections without a way to enter a network namespace or to set the mark, and its server
// connects to the application with its own address.
package ztunnel
