// Package decide says which pods are redirected, and with which parameters.
//
// [Early] decides from what the container runtime hands to a CNI plugin, [Decide] from the pod, and [Parameters] makes of a mesh
// pod the [rules.Redirect] that is compiled into its rules. Names, precedence and defaults are those of Istio's injector and of
// istio-cni, which this replaces; where istio-cni ignores what the injector has written into the pod, that is honoured.
//
// The package is pure: it makes no system call, asks no API server, and has a [Pod] type of its own with the few fields that
// count, so that encoding/json fills it from an API server's answer. All functions are safe for concurrent use as long
// as nobody changes the values they are given.
package decide
