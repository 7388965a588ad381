// Package injection injects sidecars into the pods of the sample application (package mesh) with
// Istio's own programs, and compares Sluice's redirection of each pod with Istio's:
//
//	build     a module that builds Istio's pilot-discovery (istiod) and pilot-agent
//	cmd       pilot-agent with a replacement for Envoy
//
// [Start] runs istiod with the configuration of Istio's chart and a fake API server.
// [Istiod.Inject] calls the webhook of istiod. The tests inject each pod twice, for a CNI plugin
// and for istio-init, and compare the rules of Sluice's plugin with the rules of istio-init.
package injection
