// Package chain finds the network configuration that a container runtime uses, and puts a plugin
// into its chain and takes it out again.
//
// Everything is a function of bytes and names; nothing is read or written here. Edits work on
// positions in the JSON text, so that each byte that others wrote stays: order of keys, fields that
// nobody knows, indentation, line ends. What is a valid configuration is libcni's judgement, with
// its code, since the runtimes use the same.
package chain
