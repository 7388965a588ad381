// Package docker finds a container engine for a cluster of containers: the one that runs on this
// machine, or else one of its own, in a machine of namespaces with which everything that it made
// goes.
package docker
