// Package credential watches what the API server makes of the agent's own credentials: the service
// account token and the certificate authority that the kubelet projects into the agent's pod.
//
// A ServiceAccount that is deleted and created again has another UID, and the API server rejects
// all tokens of the old one (401). A certificate authority that is rotated leaves connections whose
// certificate the old one did not sign. Package apiclient reads both files before each request, and
// tells [Monitor.Outcome] what became of it.
//
// The kubelet replaces a token after 80 % of its life and not earlier: it caches it by the pod and
// does not know the UID of the ServiceAccount (kubernetes/kubernetes#132802). The chart asks for
// tokens of ten minutes, which bounds the outage. If the kubelet does not replace a rejected token
// in time, [Monitor.Run] returns an error, with which the agent exits: the kubelet then sets up the
// volumes of the pod again before it restarts the container. Exits back off, and a file in the run
// directory keeps their number across restarts.
package credential
