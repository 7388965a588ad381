// Package token maintains the plugin's kubeconfig, which the plugin uses to read pods from the API
// server when the node agent is not running.
//
// The kubeconfig contains a token of the agent's service account. The agent requests it with a
// separate lifetime (TokenRequest) if it has the permission. Otherwise it uses the token that the
// kubelet projects into the agent's pod, which becomes invalid when the pod is deleted.
//
// A new token is checked against the API server, with the plugin's client, before it is published.
// If the API server rejects it, the old token stays, and the status contains the reason. A valid
// token is published even if its owner lacks the permission to read pods, because the permission
// may be granted later; until then the status contains the answer of the API server. The status
// also reports an API server that has not replied for half a minute. Both are checked again within
// five seconds, or by the next attempt to renew the token.
//
// Tokens are renewed at a random time between three eighths and half of their lifetime, so that
// they remain valid during an outage of the API server of the other half.
package token
