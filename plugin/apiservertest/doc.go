// Package apiservertest is a fake Kubernetes API server for tests: an HTTPS server that stores pods
// and namespaces, checks credentials, writes a kubeconfig for itself, and simulates the faults that
// a test sets.
//
//	server := apiservertest.Start(t)
//	server.Put(pod)
//	server.Next(apiservertest.InternalError(), apiservertest.NoReply())
//	... the first request gets a 500, the second is never answered, the third gets the pod
//
// A server of [StartInMemory] needs no network, and works with the virtual time of
// testing/synctest.
//
// A server of [StartForAgent] also has the objects that the node agent requests: its DaemonSet, its
// node and a token of its service account. [Server.TokenFile] and [Server.CAFile] return the files
// that a kubelet projects into the agent's pod.
package apiservertest
