// Package zds compares the server of ztunnel (package install/ztunnel) with the real istio-cni: the
// same ztunnels connect to both, and both are told of the same pods. The messages that the ztunnels
// receive are compared, with the network namespaces in them. The package contains only tests.
package zds
