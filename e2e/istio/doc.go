// Package istio runs Istio's own programs in network namespaces like a pod's, so that Sluice can be
// compared with them: their rules are the specification.
package istio
