// Package zds compares Sluice's ZDS server (package install/ztunnel) with istio-cni. The same
// clients connect to both servers, and the same pods are added to both. The tests compare the
// messages and the network namespaces that the clients receive. The package contains only tests.
package zds
