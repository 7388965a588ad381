// Package token keeps the plugin's kubeconfig: the way to the API server when the node agent is
// away.
//
// The kubeconfig has a token of the agent's service account. It is asked for with a lifetime of its
// own (TokenRequest) where the agent may do that; otherwise it is the one that the kubelet projects
// into the agent's pod, which stops to be worth anything when that pod is deleted. A new token is
// tried against the API server, by the plugin's own client, before it is published. One that is
// refused is not: the old one stays, and the status says why. One that is good, but whose owner
// lacks the right to read pods, is published, since the right may come; until then the status says
// that it is of no use, and what the API server has answered. The same holds for an API server that
// does not answer for half a minute. Both are tried again within five seconds, or by the next
// attempt to renew the token if that fails. Tokens are renewed after half of their life, so that an
// API server may be away for the other half.
package token
