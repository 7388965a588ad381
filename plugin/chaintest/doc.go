// Package chaintest runs the plugin as container runtimes do: libcni executes it behind the reference plugins, in namespaces that
// play a node and its pods. It is tests only. Nothing of the host's own network is touched.
package chaintest
