// Package e2e is the root of a module of its own for all that needs a cluster, another kernel or a
// peer's program, so that none of their dependencies reaches the users of Sluice. It holds no code
// itself:
//
//	istio         runs Istio's programs in network namespaces like a pod's, and compares Sluice with them
//	istio/cmd     those programs, as thin mains around their packages, at the version that go.mod says
//	istio/matrix  the configurations that they are compared for
//	injection     has pods injected by the real istiod, and compares what Sluice makes of them with what istio-init does
//	cluster       runs a real Kubernetes in namespaces of its own, built from Go modules
//	bench         measures Sluice's time and memory beside those of its peers
//
// The tests need root, and what "make test-peers" builds; "go test" alone does not find that.
package e2e
