// Package istio runs Istio's programs in network namespaces, and compares their rules with
// Sluice's, which must treat packets like Istio's.
package istio
