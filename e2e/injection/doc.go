// Package injection injects pods of the sample application with Istio's own programs, and compares
// Sluice's redirection of each pod with Istio's:
//
//	build     pilot-discovery, which is istiod, and pilot-agent, in the version of go.mod, as a separate module
//	cmd       pilot-agent with a replacement for Envoy
//
// [Start] runs istiod with the configuration of Istio's chart and a fake API server.
// [Istiod.Inject] calls its webhook. The tests inject each pod twice: for a CNI plugin, and for
// istio-init. They compare the plugin's rules with istio-init's.
package injection
