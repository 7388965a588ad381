// Package observe shows how the node agent is: metrics by the table of package metrics, readiness
// with its reasons, and the HTTP handlers for both.
package observe
