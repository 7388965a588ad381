// Package e2e is the root of a separate module for everything that needs a cluster, another kernel
// or programs of Istio, so that users of Sluice do not get these dependencies. It contains no code:
//
//	istio         runs Istio's programs in network namespaces, and compares Sluice's rules with theirs
//	istio/cmd     these programs, with Istio's packages at the version in go.mod
//	istio/matrix  the configurations for the comparison
//	injection     lets the real istiod inject pods, and compares Sluice's rules with those of istio-init
//	cluster       runs a real Kubernetes in namespaces, built from Go modules
//	suite         tests Sluice on such a cluster
//	kernels       runs tests on other kernels under qemu
//	bench         measures Sluice and its peers in one run
//	image         builds the image without a container engine
//
// The modules deploy (chart, manifests and alerts) and release are in directories of their own.
//
// The tests need root and the programs that the targets of the Makefile build.
package e2e
