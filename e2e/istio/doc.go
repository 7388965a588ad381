// Package istio runs Istio's programs in network namespaces that look like pods, and compares their
// rules with Sluice's. Istio's rules are the specification.
package istio
