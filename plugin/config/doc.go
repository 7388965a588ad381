// Package config reads the configuration of the CNI plugin: the entry of a network configuration
// list, as the runtime completes it and passes it on standard input.
//
// [Parse] returns a [Config], and reports all invalid fields together. [ParseLenient] returns the
// valid part of any input, for verbs that must not fail. [Fields] returns all fields, with their
// descriptions for the manual. Fields that Istio's plugin has, or had, have the same names.
// Unknown fields are ignored, because runtimes and other programs add fields. Unknown fields that
// resemble a field of the plugin are errors: otherwise a misspelled exclusion would not be noticed.
//
//	c, err := config.Parse([]byte(`{"cniVersion":"1.1.0","name":"n","type":"sluice-cni","backend":"nft"}`))
package config
