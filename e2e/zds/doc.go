// Package zds compares Sluice's ZDS server (package install/ztunnel) with istio-cni. The same ztunnels
// connect to both, the same pods are added to both, and the messages that the ztunnels receive are
// compared, including the network namespaces. The package contains only tests.
package zds
