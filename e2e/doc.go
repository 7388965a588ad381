// Package e2e is the root of a separate module for everything that requires a cluster, another
// kernel or programs of Istio. Because it is separate, users of Sluice do not get its dependencies.
// The package contains no code. The module contains:
//
//	istio         runs Istio's programs in network namespaces, and compares their rules with
//	              Sluice's
//	istio/cmd     Istio's programs, built from Istio's packages at the version in go.mod
//	istio/matrix  the configurations for the comparison
//	injection     injects pods with istiod, and compares Sluice's rules with istio-init's
//	cluster       runs Kubernetes clusters on this machine
//	mesh          the pods, proxies and clients of a sample application
//	suite         tests Sluice on a cluster
//	zds           compares Sluice's messages to ztunnel with istio-cni's
//	soak, scale   test the agent under load
//	kernels       runs tests on other kernels under qemu
//	bench         measures Sluice and its peers in one run
//	image         builds the image without a container engine
//	embedded      decodes files that are embedded in programs
//	readme        reads commands in READMEs, and updates their generated blocks
//
// The subdirectories deploy (chart, manifests and alerts) and release are separate modules.
//
// The tests require root, and programs that targets of the Makefile build.
package e2e
