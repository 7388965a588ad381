// Package docker provides a container engine for a cluster of kind: the engine of this machine
// ([UseHost]), or one that runs in an emulated machine of package machine ([StartNamespaced]) and is
// removed with it.
package docker
