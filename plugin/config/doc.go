// Package config reads the configuration of the CNI plugin: the entry of a network configuration
// list, as the runtime completes it and passes it on standard input.
//
// [Parse] returns a [Config], and reports all wrong fields together. [ParseLenient] returns the
// valid part of any input, for verbs that must not fail. [Fields] is the table of all fields, from
// which the documentation is written. The names are those of Istio's plugin where it has, or had,
// the same field.
//
// Unknown fields are ignored, since runtimes and other programs add their own, except for those
// that look like a misspelt field of ours: a misspelt exclusion would go unnoticed until it is
// needed.
//
//	c, err := config.Parse([]byte(`{"cniVersion":"1.1.0","name":"n","type":"sluice-cni","backend":"nft"}`))
package config
