// Package injection has the pods of the sample application injected by Istio itself, so that what
// Sluice makes of a pod is held against what Istio makes of the same one:
//
//	build     pilot-discovery, which is istiod, and pilot-agent, at the version that go.mod says, as a module of their own
//	cmd       pilot-agent with a stand-in for Envoy
//
// [Start] runs istiod as Istio's chart installs it, with a double instead of the API server,
// and [Istiod.Inject] asks its webhook. The tests have each pod injected twice: for a CNI plugin,
// and for istio-init, which says what the plugin is to do.
package injection
