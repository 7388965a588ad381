// Package injection injects pods of the sample application with Istio's own programs, and compares
// what Sluice does with a pod with what Istio does with the same one:
//
//	build     pilot-discovery, which is istiod, and pilot-agent, in the version of go.mod, as a separate module
//	cmd       pilot-agent with a replacement for Envoy
//
// [Start] runs istiod with the configuration of Istio's chart and a stand-in for the API server.
// [Istiod.Inject] calls its webhook. The tests inject each pod twice: for a CNI plugin, and for
// istio-init, whose rules are the expected result of the plugin.
package injection
