// Package docker provides a container engine for a kind cluster: the engine of this machine
// ([UseHost]), or an engine in an emulated machine of package machine ([StartNamespaced]).
package docker
