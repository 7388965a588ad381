// Package token maintains the plugin's kubeconfig, which the plugin uses to read pods from the API
// server when the node agent is not running.
//
// The kubeconfig contains a token of the agent's service account. The agent requests a token with a
// separate lifetime (TokenRequest) if its permissions allow this. Otherwise the agent uses the
// token that the kubelet projects into its pod, which becomes invalid when the pod is deleted.
//
// Before a new token is published, the agent sends the plugin's requests with it. If the API server
// rejects the token, the old token stays, and the status contains the reason. A valid token is
// published even if its owner lacks the permission to read pods, because the permission may be
// granted later; until then the status contains the API server's message. The status also contains
// the error of an API server that does not answer; after half a minute without an answer the token
// counts as unusable. While the permission is missing or the API server does not answer, the
// published token is checked again after at most five seconds.
//
// Requested tokens are renewed at a random time between three eighths and half of their lifetime. A
// published token therefore remains valid during an outage of half its lifetime.
package token
