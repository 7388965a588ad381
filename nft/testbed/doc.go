// Package testbed makes, in namespaces of this host, a pod with its proxy and its application and
// the neighbour that stands for the rest of the world, and tells what becomes of the connections
// that each of them opens: for tests and the demonstration.
//
// Everybody who is reached answers with his name, the destination that the caller had asked for and
// the addresses that he sees. Nothing here programs rules: a bed without rules shows what an
// unredirected pod does.
//
//	bed, err := testbed.New(testbed.Options{})
//	...
//	defer bed.Close()
//	err = bed.StartProxy(testbed.ProxyOptions{Owner: testbed.ProxyOwner})
//	...
//	answer, err := bed.Dial(testbed.Call{Network: "tcp", To: netip.MustParseAddrPort("10.9.9.9:80")})
//	fmt.Println(answer) // "outside 10.9.9.9:80" without rules, "outbound 10.9.9.9:80" with redirection
//
// The namespaces have no name and no process: they vanish with [Bed.Close], and with the process
// whatever ends it.
package testbed
