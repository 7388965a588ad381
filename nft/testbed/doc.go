// Package testbed creates a test network in namespaces of this host: a pod with a proxy and an
// application, and a neighbor that represents the rest of the network. It opens connections
// between them and reports their outcomes, for tests and the demonstration.
//
// Each server answers with its name, the original destination of the call and the addresses of its
// socket. The package programs no rules: without rules the pod is not redirected.
//
//	network, err := testbed.New(testbed.Options{})
//	...
//	defer network.Close()
//	err = network.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner})
//	...
//	to := netip.MustParseAddrPort("10.9.9.9:80")
//	answer, err := network.Dial(testbed.Call{Network: "tcp", To: to})
//	// "outside 10.9.9.9:80" without rules, "outbound 10.9.9.9:80" with redirection
//	fmt.Println(answer)
//
// The namespaces have no name and contain no process. The kernel destroys them after
// [Network.Close], or when the process that created them ends.
package testbed
