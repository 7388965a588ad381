// Package sourcetest is a double of Kubernetes' API server for tests: an HTTPS server that knows pods and namespaces, asks for
// credentials, writes a kubeconfig for itself, and misbehaves when told to.
//
//	server := sourcetest.Start(t)
//	server.Put(pod)
//	server.Next(sourcetest.InternalError(), sourcetest.Silent())
//	... the first try gets a 500, the second one is never answered, the third gets the pod
//
// Started by [StartInMemory] it needs no network, and works with the virtual time of testing/synctest.
package sourcetest
