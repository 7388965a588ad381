// Package istio runs Istio's own programs in network namespaces like a pod's, and compares Sluice
// with them. Their rules are the specification.
package istio
