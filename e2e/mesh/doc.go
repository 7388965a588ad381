// Package mesh makes the pods of a sample application: as a user writes them, and as Istio's
// injector changes them when a CNI plugin is to redirect. Their image holds the commands mesh
// (below cmd) and rules, and nothing else:
//
//	path    which way a request went, and whether that was right
//	proxy   stands for Envoy and its agent
//	server  the application's servers, and client who asks them
//	name    the same for DNS
package mesh
