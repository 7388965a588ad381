// Package scale has a test that measures what the node agents of a large cluster cost the API
// server, and that their requests are spread over time.
//
// Thousands of agents run in one process, in the virtual time of testing/synctest: half an hour of
// the cluster takes minutes, and a busy machine changes no figure. Of an agent, the parts that send
// requests run: the service account's client with its credentials, the cache of the node's pods,
// the watch of the DaemonSet, and the publisher of the plugin's kubeconfig. They speak HTTP/2 and
// TLS with one stand-in for the API server, on connections in memory. A test of sluice-node checks
// that the program sends the same requests.
//
// The parameters of [TestScale] are environment variables:
//
//	SLUICE_SCALE=5000     number of nodes; default 100
//	SLUICE_SCALE_WRITE=1  write the figures to e2e/bench
//
// make scale runs it with 5,000 nodes and writes the figures.
package scale
