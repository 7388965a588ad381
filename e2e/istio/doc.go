// Package istio runs Istio's programs in network namespaces that look like pods, and compares their
// rules with Sluice's. Sluice's rules must treat packets like Istio's.
package istio
