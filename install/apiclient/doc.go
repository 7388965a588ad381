// Package apiclient provides the node agent's client of the API server.
//
// A [Client] authenticates with the service account token and the certificate authority that the
// kubelet projects into a pod. It reads both files before each request, so that the next request
// uses a replaced file; client-go would use an old token for up to a minute, and an old authority
// for up to five minutes. It does not follow redirects, because the token would be sent to another
// server.
//
//	client, err := apiclient.New(apiclient.Options{
//		Server: "https://10.96.0.1:443", TokenFile: tokenFile, CAFile: caFile,
//	})
//	...
//	defer client.Close()
//	response, err := client.Do(ctx, http.MethodGet, "/api/v1/nodes/node-1", nil)
//
// [Client.Do] sends JSON requests, and [Client.REST] returns a client for client-go's reflectors.
package apiclient
