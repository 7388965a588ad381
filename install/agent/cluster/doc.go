// Package cluster contains the node agent's requests to the API server about its DaemonSet, its
// node and its pods, and its events.
//
// It sends JSON with package apiclient, with types that contain only the required fields: the typed
// clients would link every API group. The caller's context limits all operations.
package cluster
