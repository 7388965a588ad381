// Package mesh builds the pods of a sample application: plain ones, and pods as Istio's injector
// rewrites them when istio-cni is enabled, that is, without an istio-init container. Their image
// contains only the commands mesh (package cmd/mesh) and rules. The packages below are:
//
//	path    records the proxies that a request passed and checks them
//	proxy   is a stub of Envoy and istio-agent
//	ztunnel is a stub of Istio's ztunnel, for pods in ambient mode
//	server  is the server of the application
//	client  sends requests to it
//	name    is a minimal DNS server and client
package mesh
