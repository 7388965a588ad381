// Package observe exposes the state of the node agent: the metrics of package metrics, readiness
// with its reasons, and the HTTP handlers for both.
package observe
