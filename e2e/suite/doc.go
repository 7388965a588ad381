// Package suite proves on a real Kubernetes that a user who installs the chart gets what the README
// promises: the chart is installed by Helm, the pods are those of package mesh, and what counts is
// what connections did.
//
// "make e2e", "make e2e-kind" and "make e2e-node" build what it needs and run it. The cluster is
// chosen by E2E_PROVIDER: local is that of cluster.Start, kind that of cluster.StartKind, whose node
// image E2E_NODE_IMAGE says, and vm that of cluster.StartVM, on which only TestNode runs. All other
// tests run on local and kind but for those of the part nodes, which are there
// where the cluster has two; the others use one node, and do not mind more. A part is chosen by
// -run, as in
// -run 'TestSluice/traffic/.*IPv6'; every part installs the chart for itself where it is not.
package suite
