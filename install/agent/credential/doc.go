// Package credential monitors the agent's own credentials: the service account token and the
// certificate authority that the kubelet projects into the agent's pod.
//
// If a ServiceAccount is deleted and created again, it has another UID, and the API server rejects
// all tokens of the old one (401). After a rotation of the certificate authority, the old one does
// not verify the API server's certificate. Package apiclient reads both files before each request,
// and passes the outcome to [Monitor.RecordResponse].
//
// The kubelet replaces a token after 80 % of its lifetime and not earlier: its cache uses the pod
// as the key and does not contain the UID of the ServiceAccount (kubernetes/kubernetes#132802). The
// chart requests tokens for ten minutes, which limits the outage. If the kubelet does not replace a
// rejected token in time, [Monitor.Run] returns an error and the agent exits: the kubelet then sets
// up the volumes of the pod again before it restarts the container. The time between two exits
// doubles; a file in the run directory contains their number.
package credential
