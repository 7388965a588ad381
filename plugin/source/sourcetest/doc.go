// Package sourcetest is a fake API server of Kubernetes for tests: an HTTPS server that has pods
// and namespaces, requires credentials, writes a kubeconfig for itself, and returns faults on
// request.
//
//	server := sourcetest.Start(t)
//	server.Put(pod)
//	server.Next(sourcetest.InternalError(), sourcetest.Silent())
//	... the first request gets a 500, the second is never answered, the third gets the pod
//
// A server of [StartInMemory] needs no network, and works with the virtual time of
// testing/synctest.
package sourcetest
