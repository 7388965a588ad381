// Package chain finds the network configuration that a container runtime uses, inserts a plugin
// into the configuration's chain, and removes the plugin.
//
// All functions work on bytes and names; the package reads and writes no files. Edits replace
// ranges of the JSON text. They keep all other bytes: the order of keys, unknown fields,
// indentation and newlines. Configurations are validated with libcni's code, which the runtimes
// use.
package chain
