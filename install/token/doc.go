// Package token keeps the plugin's kubeconfig: the way to the API server when the node agent is away.
//
// The kubeconfig has a token of the agent's service account. It is asked for with a lifetime of its own (TokenRequest) where the
// agent may do that; otherwise it is the one that the kubelet projects into the agent's pod, which stops to be worth anything
// when that pod is deleted. A new token is tried against the API server, by the plugin's own client, before it is published. One
// that is refused is not: the old one stays, and the status says why. Tokens are renewed after half of their life, so that an API
// server may be away for the other half.
package token
