// Package cluster is what the node agent asks the API server about itself: its DaemonSet, its node,
// its pods, and the events that it tells.
//
// It sends JSON by package apiclient, with types that have only what is read here:
// the typed clients would link every API group. Reading and waiting are bounded by the caller's
// context.
package cluster
