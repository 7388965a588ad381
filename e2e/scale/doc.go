// Package scale contains a test that measures the load of the node agents of a large cluster on the
// API server, and checks that their requests are spread over time.
//
// Thousands of agents run in one process, in the virtual time of testing/synctest. The simulation
// of half an hour takes minutes, and the load of the machine does not affect the results. Only the
// parts of an agent that send requests run: the client of the service account, the pod cache, the
// watch of the DaemonSet, and the publisher of the plugin's kubeconfig. They use HTTP/2 and TLS
// with a fake API server, over in-memory connections. A test of sluice-node checks that the real
// program sends the same requests.
//
// The parameters of [TestScale] are environment variables:
//
//	SLUICE_SCALE=5000     number of nodes; default 100
//	SLUICE_SCALE_WRITE=1  write the figures to e2e/bench
//
// make scale runs the test with 5,000 nodes and writes the figures.
package scale
