// Package chaintest has tests that run the plugin as container runtimes do: libcni executes it
// after the reference plugins, in namespaces that represent a node and its pods. The network of the
// host is not changed.
package chaintest
