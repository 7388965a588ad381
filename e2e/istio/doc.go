// Package istio runs Istio's programs in network namespaces that look like pods, and compares their
// rules with Sluice's rules, which must treat packets like Istio's rules.
package istio
