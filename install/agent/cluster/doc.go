// Package cluster contains the node agent's requests to the API server about its DaemonSet, its
// node and its pods, and its events.
//
// It sends JSON with package apiclient. Its types contain only the required fields, because the
// typed clients of client-go would link every API group. The caller's context limits all requests
// except later updates of events, which have their own time limit.
package cluster
