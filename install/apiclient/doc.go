// Package apiclient makes the node agent's clients of the API server.
//
// A [Client] authenticates with the service account token and the certificate authority that the
// kubelet projects into a pod. It reads both files before each request, so that a new one is used
// by the next request; client-go would use an old token for up to a minute, and an old authority
// for five. It follows no redirect, which would send the token to another server.
//
//	client, err := apiclient.New(apiclient.Options{
//		Server: "https://10.96.0.1:443", TokenFile: tokenFile, CAFile: caFile,
//	})
//	...
//	defer client.Close()
//	response, err := client.Do(ctx, http.MethodGet, "/api/v1/nodes/node-1", nil, nil)
//
// [Client.Do] sends JSON requests, and [Client.REST] returns a client for client-go's reflectors.
package apiclient
