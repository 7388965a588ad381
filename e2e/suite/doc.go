// Package suite tests Sluice on a Kubernetes cluster. Helm installs the chart, package mesh defines
// the pods, and the tests check the paths of the pods' connections.
//
// "make e2e", "make e2e-kind" and "make e2e-node" build the required programs and run the tests.
// E2E_PROVIDER selects the cluster: local (cluster.Start), kind (cluster.StartKind, with the node
// image E2E_NODE_IMAGE) or vm (cluster.StartVM). On vm, "make e2e-node" runs only TestNode. The
// groups "nodes" and "ambient nodes" require a cluster with two nodes. The flag -run selects groups
// and tests, such as -run 'TestSluice/traffic/.*IPv6'. Each test installs or uninstalls the chart
// if necessary.
package suite
