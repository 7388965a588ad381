// Package mesh defines the pods of a sample application: pods without a sidecar, and pods as Istio
// injects them if istio-cni is enabled (without istio-init). Their image contains only the commands
// mesh (package cmd/mesh) and rules. The subpackages are:
//
//	path    records and checks the proxies that forwarded a request
//	proxy   is a minimal replacement for Envoy and istio-agent
//	ztunnel is a minimal replacement for Istio's ztunnel, for pods in ambient mode
//	server  is the server of the application
//	client  sends requests to the application
//	name    is a minimal DNS server and client
package mesh
